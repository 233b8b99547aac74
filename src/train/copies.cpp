#include "train/copies.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "base/hash.hpp"
#include "base/index.hpp"
#include "checkpoint/rank_group.hpp"

namespace ztrain::train {
namespace {

constexpr std::size_t most_listed = 4;

std::string named(const Copies& of) {
  return fmt::format("rank {} ({})", of.rank, of.host);
}

/// Returns the hash that more than half of the copies have of a piece, or nothing.
std::optional<std::uint64_t> of_most(const std::vector<Copies>& copies, std::size_t piece) {
  std::map<std::uint64_t, std::size_t> count;
  for (const Copies& of : copies)
    if (2 * ++count[of.hashes[piece]] > copies.size()) return of.hashes[piece];
  return std::nullopt;
}

Corruption describe_piece(const std::string& name, const std::vector<Copies>& copies, std::size_t piece) {
  const auto most = of_most(copies, piece);
  std::vector<std::string> wrong;
  std::set<std::string> nodes;
  for (const Copies& of : copies) {
    if (most && of.hashes[piece] == *most) continue;
    wrong.push_back(named(of));
    nodes.insert(of.host);
  }
  const std::size_t count = wrong.size();
  if (count > most_listed) {
    wrong.resize(most_listed);
    wrong.push_back(fmt::format("{} more", count - most_listed));
  }
  const std::string who = fmt::format("{}: {}", name, fmt::join(wrong, " and "));
  if (!most) return {who + " have different bytes, and which are wrong is not known", ""};
  return {fmt::format("{} {} other bytes than the other {} ranks that hold copies", who,
                      count == 1 ? "has" : "have", copies.size() - count),
          fmt::format("{}", fmt::join(nodes, ","))};
}

constexpr std::size_t class_count = std::size_t{1} << axis_count;
static_assert(class_count <= 64, "a bit for each in a word");

/// A class is the pieces that are copied over one AxisSet. Ranks with the same names in it hold copies of
/// each other.
struct Class {
  std::vector<std::string> names;
  std::vector<std::uint64_t> hashes;
  std::int64_t named = 0, held = 0;  ///< hash of all names; hash of all hashes
};

/// Returns one class for each AxisSet, by its bits. A rank may have no pieces in some.
std::vector<Class> classes_of(const std::vector<job::HeldPiece>& pieces) {
  std::vector<Class> classes(class_count);
  for (const job::HeldPiece& piece : pieces) {
    Class& c = classes[at(piece.copied.bits())];
    c.names.push_back(piece.name);
    c.hashes.push_back(piece.hash);
    c.named = static_cast<std::int64_t>(hash_text(piece.name, static_cast<std::uint64_t>(c.named)));
    c.held = static_cast<std::int64_t>(
        hash_bytes(&piece.hash, sizeof piece.hash, static_cast<std::uint64_t>(c.held)));
  }
  return classes;
}

/// Collective. Returns the indices of the classes in which any rank has pieces.
std::vector<std::size_t> classes_in_use(const checkpoint::Group& world, const std::vector<Class>& own) {
  std::uint64_t used = 0;
  for (std::size_t c = 0; c < own.size(); ++c)
    if (!own[c].names.empty()) used |= std::uint64_t{1} << c;
  for (const std::int64_t of_rank : world.all_gather(static_cast<std::int64_t>(used)))
    used |= static_cast<std::uint64_t>(of_rank);
  std::vector<std::size_t> list;
  for (std::size_t c = 0; c < own.size(); ++c)
    if ((used >> c & 1u) != 0) list.push_back(c);
  return list;
}

/// Returns the `named` of the first group of ranks whose `held` differ, or nothing.
std::optional<std::int64_t> differing_group(const std::vector<std::int64_t>& named,
                                            const std::vector<std::int64_t>& held) {
  std::map<std::int64_t, std::int64_t> first;
  for (std::size_t rank = 0; rank < named.size(); ++rank)
    if (first.emplace(named[rank], held[rank]).first->second != held[rank]) return named[rank];
  return std::nullopt;
}

/// Collective. Returns what rank 0 finds of the pieces of the ranks that take part, on every rank.
Corruption describe_group(const runtime::Session& session, const checkpoint::Group& world, const Class& own,
                          bool takes_part) {
  const auto hosts = world.gather_text(takes_part ? session.host() : "");
  const auto names = world.gather_text(takes_part ? fmt::format("{}", fmt::join(own.names, "\n")) : "");
  const auto hashes = world.gather_text(takes_part ? fmt::format("{}", fmt::join(own.hashes, " ")) : "");
  std::vector<Copies> copies;
  std::vector<std::string> pieces;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank].empty()) continue;
    Copies& of = copies.emplace_back(Copies{static_cast<int>(rank), hosts[rank], {}});
    std::istringstream values(hashes[rank]);
    for (std::uint64_t value = 0; values >> value;) of.hashes.push_back(value);
    if (!pieces.empty()) continue;
    std::istringstream lines(names[rank]);
    for (std::string line; std::getline(lines, line);) pieces.push_back(line);
  }
  const Corruption found = describe_differing(pieces, copies);
  return {session.from_rank_0(found.text), session.from_rank_0(found.nodes)};
}

}  // namespace

Corruption describe_differing(const std::vector<std::string>& names, const std::vector<Copies>& copies) {
  Corruption found;
  std::size_t differing = 0;
  for (std::size_t piece = 0; piece < names.size(); ++piece) {
    const auto same = [&](const Copies& of) { return of.hashes[piece] == copies.front().hashes[piece]; };
    if (std::ranges::all_of(copies, same)) continue;
    if (++differing == 1) found = describe_piece(names[piece], copies, piece);
  }
  if (differing > 1) found.text += fmt::format(" (and so in {} more)", differing - 1);
  return found;
}

Corruption differing_copies(const runtime::Session& session, const std::vector<job::HeldPiece>& pieces) {
  const auto world = checkpoint::Group::world();
  const std::vector<Class> classes = classes_of(pieces);
  for (const std::size_t c : classes_in_use(world, classes)) {
    const Class& own = classes[c];
    const auto named = world.all_gather(own.named), held = world.all_gather(own.held);
    if (const auto group = differing_group(named, held))
      return describe_group(session, world, own, own.named == *group);
  }
  return {};
}

Corruption differing_steps(const runtime::Session& session, const job::StepDifference& own) {
  const auto world = checkpoint::Group::world();
  const auto issues = world.all_gather(own.op ? own.op->issue : -1);
  const auto differing = world.all_gather(std::ssize(own.results));
  const auto wrong = std::ranges::find_if(issues, [](std::int64_t issue) { return issue >= 0; });
  const auto most = std::ranges::max_element(differing);
  if (wrong != issues.end()) {
    const auto rank = static_cast<int>(wrong - issues.begin());
    return {
        fmt::format("the step was computed twice, and rank {} ({}) has made different things of the same: {}",
                    rank, world.broadcast(session.host(), rank),
                    world.broadcast(own.op ? own.op->text : "", rank)),
        world.broadcast(session.host(), rank)};
  }
  if (*most == 0) return {};
  const auto rank = static_cast<int>(most - differing.begin());
  return {fmt::format("the step was computed twice, and its results differ, whichever rank was wrong: {}, on "
                      "rank {} ({}) and {} more",
                      world.broadcast(own.results.empty() ? "" : own.results.front(), rank), rank,
                      world.broadcast(session.host(), rank),
                      std::ranges::count_if(differing, [](std::int64_t count) { return count > 0; }) - 1),
          ""};
}

}  // namespace ztrain::train
