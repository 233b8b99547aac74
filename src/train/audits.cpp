#include "train/audits.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "base/hash.hpp"
#include "base/shape.hpp"
#include "checkpoint/rank_group.hpp"
#include "job/held_pieces.hpp"

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
  constexpr std::size_t word = 64;  // classes that one exchange tells of
  std::vector<std::size_t> list;
  for (std::size_t begin = 0; begin < own.size(); begin += word) {
    const std::size_t end = std::min(begin + word, own.size());
    std::uint64_t used = 0;
    for (std::size_t c = begin; c < end; ++c)
      if (!own[c].names.empty()) used |= std::uint64_t{1} << (c - begin);
    for (const std::int64_t of_rank : world.all_gather(static_cast<std::int64_t>(used)))
      used |= static_cast<std::uint64_t>(of_rank);
    for (std::size_t c = begin; c < end; ++c)
      if ((used >> (c - begin) & 1u) != 0) list.push_back(c);
  }
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

namespace {

/// Returns a piece that describes the step's counters, which are equal on all ranks.
job::HeldPiece counters_of(const job::Progress& progress, const StepScalars& scalars) {
  const std::string counted =
      fmt::format("{} {} {} {} {}", progress.step, progress.samples, progress.optimizer_steps,
                  progress.loss_scaler.scale, progress.skipped_in_a_row);
  return {"loss, norm, rate and counters of the step", AxisSet::all(),
          hash_bytes(&scalars, sizeof scalars, hash_text(counted))};
}

}  // namespace

bool Audits::is_due() const {
  const std::int64_t interval = run_.deck.watchdog.audit_interval;
  return interval > 0 && (run_.progress.step % interval == 0 || run_.is_complete());
}

bool Audits::copies_agree() {
  if (run_.deck.watchdog.audit_interval == 0 || audited_step_ == run_.progress.step) return true;
  const telemetry::Phase phase(run_.console, "comparing the copies of the state");
  std::vector<job::HeldPiece> pieces;
  run_.session.agree("comparing the copies of the state", [&] { pieces = job::held_pieces(run_.worker); });
  pieces.push_back(counters_of(run_.progress, run_.worker.scalars()));
  const Corruption found = differing_copies(run_.session, pieces);
  if (!found.text.empty()) {
    go_back(run_.progress.step, found);
    return false;
  }
  audited_step_ = run_.progress.step;
  return true;
}

std::vector<checkpoint::StateShard> Audits::copied_state() {
  std::vector<checkpoint::StateShard> states;
  kept_.reset();
  try {
    checkpoint::Group::world().together([&] {
      states = run_.worker.copied_state();
      if (run_.deck.watchdog.audit_interval > 0) kept_hash_ = job::hash_of_copy(run_.worker);
    });
  } catch (const runtime::AgreedError& e) {
    throw checkpoint::NotSaved(e.what());
  }
  kept_ = run_.progress;
  return states;
}

bool Audits::is_taken_twice() const {
  const std::int64_t interval = run_.deck.watchdog.audit_interval;
  return interval > 0 && run_.progress.step % interval == 0 && has_kept();
}

void Audits::step_twice() {
  for (;;) {
    const job::StepDifference own = job::step_twice(
        run_.worker,
        [this] {
          restore_kept();
          output_.pass_over_sent();
        },
        [this](StepScalars&) { run_.set_scalars(); });
    const Corruption found = differing_steps(run_.session, own);
    if (found.text.empty()) return;
    go_back(run_.progress.step + 1, found);
  }
}

/// Collective. Goes back to the copy that is kept. Checks its hash first: a copy that has changed would pass
/// for the state from then on.
void Audits::restore_kept() {
  const telemetry::Phase phase(run_.console, "going back to the state that is kept",
                               [this] { return run_.worker.position(); });
  run_.session.agree("going back to the state that is kept", [&] {
    REQUIRE(job::hash_of_copy(run_.worker) == kept_hash_,
            "step {}: the copy of the state of step {} has changed in the memory of {}, so the run cannot go "
            "back to it; the same command goes on from the newest checkpoint",
            run_.progress.step, kept_->step, run_.session.host());
  });
  run_.worker.restore_copied();
}

/// Collective. Goes back to the state that is kept, because step `at` is wrong. Everything but the inputs of
/// the next step follows from that state, as in a run that is started again.
void Audits::go_back(std::int64_t at, const Corruption& found) {
  const std::string what = fmt::format("step {}: silent corruption: {}", at, found.text);
  if (!kept_) throw runtime::AgreedError(what);
  if (times_back_ >= run_.deck.watchdog.audit_limit)
    throw runtime::AgreedError(
        fmt::format("{}\nthe run has gone back {} times (watchdog.audit_limit), and ends; nodes to leave "
                    "out: {}; the same command goes on from the newest checkpoint",
                    what, times_back_, found.nodes.empty() ? "not known" : found.nodes));
  ++times_back_;
  run_.print("{}; the run goes back to step {}\n", what, kept_->step);
  restore_kept();
  run_.progress = *kept_;
  run_.skipped_steps =
      job::SkippedSteps(run_.deck, &run_.progress.loss_scaler, run_.progress.skipped_in_a_row);
  output_.pass_over_sent();
  audited_step_ = run_.progress.step;
  if (run_.session.rank() == 0)
    output_.write(telemetry::CorruptionRecord{run_.progress.step, at, found.text});
}

}  // namespace ztrain::train
