#include "checkpoint/neighbours/publish_snapshot.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/json.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/format/format.hpp"
#include "checkpoint/neighbours/node_folder.hpp"
#include "checkpoint/rank_group.hpp"
#include "checkpoint/retention.hpp"
#include "checkpoint/verify.hpp"
#include "config/hf/starting_point.hpp"
#include "files/posix_file.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::json;

constexpr std::int64_t copied_at_once = std::int64_t{8} << 20;

/// Returns on every rank what rank 0 makes of all ranks' answers.
json agreed(const Group& world, const std::function<json()>& say,
            const std::function<json(const std::vector<json>&)>& make) {
  json own, made;
  world.together([&] { own = say(); });
  const auto texts = world.gather_text(json_text(own));
  world.together([&] {
    std::vector<json> all;
    for (const std::string& text : texts) all.push_back(parse_json(text));
    if (world.rank() == 0) made = make(all);
  });
  return parse_json(world.broadcast(json_text(made)));
}

/// Returns all snapshots beyond `newest`, the newest first: steps and seals, or what is wrong with unreadable
/// ones.
json candidates(const std::vector<json>& of_ranks, std::int64_t newest) {
  std::set<std::tuple<std::int64_t, std::string, std::string>, std::greater<>> found;
  for (const json& of_rank : of_ranks)
    for (const json& s : of_rank)
      if (s.at(0).get<std::int64_t>() > newest) found.emplace(s.at(0), s.at(1), s.at(2));
  json all = json::array();
  for (const auto& [step, seal, fault] : found) all.push_back({step, seal, fault});
  return all;
}

class Publisher {
 public:
  Publisher(const NodeRing& ring, const SnapshotPlaces& places) : ring_(ring), places_(places) {}

  PublishedSnapshot publish_newest(std::int64_t newest) {
    const auto say = [&] {
      held_ = snapshots_in(places_.on_node);
      json own = json::array();
      for (const HeldSnapshot& s : held_)
        own.push_back({s.step, s.seal, s.fault.empty() ? "" : of_host(s.fault)});
      return own;
    };
    const json all =
        agreed(world_, say, [&](const std::vector<json>& of_ranks) { return candidates(of_ranks, newest); });
    PublishedSnapshot published;
    for (const json& candidate : all) {
      const auto step = candidate.at(0).get<std::int64_t>();
      std::string fault = candidate.at(2);
      if (fault.empty()) {
        const json plan = agreed(
            world_, [&] { return look(step, candidate.at(1)); }, plan_of);
        if (!plan.contains("missing")) {
          copy(step, plan);
          published.step = step;
          return published;
        }
        fault = plan.at("missing");
      }
      published.passed_over.push_back(fmt::format("step {}: {}", step, fault));
    }
    return published;
  }

 private:
  int node() const { return ring_.node_of(world_.rank()); }
  std::string of_host(const std::string& fault) const { return fmt::format("{}: {}", places_.host, fault); }

  /// Checks the snapshot on this rank's node; ranks of a node share its blocks.
  json look(std::int64_t step, const std::string& seal) {
    json found = {
        {"node", node()}, {"shards", json::array()}, {"faults", json::object()}, {"wanted", nullptr}};
    const auto held =
        std::ranges::find_if(held_, [&](const HeldSnapshot& s) { return s.step == step && s.seal == seal; });
    if (held == held_.end()) return found;
    source_ = held->path;
    const std::string failure = failure_of([&] { look_into(*held, found); });
    if (failure.empty()) return found;
    for (const FileEntry& file : held->shards) found["faults"][file.name] = of_host(failure);
    found["faults"][config::checkpoint_metadata_file] = of_host(failure);
    return found;
  }

  void look_into(const HeldSnapshot& held, json& found) const {
    const auto& ranks = ring_.ranks_of(node());
    const auto part = static_cast<int>(std::ranges::find(ranks, world_.rank()) - ranks.begin());
    const auto tell = [&](const std::string& name) {
      const Verified looked =
          verify(source_, {.only = name, .part = part, .parts = static_cast<int>(ranks.size())});
      const auto& wrong = looked.faults.empty() ? looked.unread : looked.faults;
      if (!wrong.empty()) found["faults"][name] = of_host(wrong.front());
      return wrong.empty();
    };
    if (!tell(config::checkpoint_metadata_file)) return;
    json wanted = json::array();
    for (const FileEntry& file : read_index(source_ / index_name).files) wanted.push_back(file.name);
    found["wanted"] = std::move(wanted);
    for (const FileEntry& file : held.shards) {
      found["shards"].push_back(file.name);
      tell(file.name);
    }
  }

  /// Returns which node gives which file, and under "index" which gives the rest; or under "missing" why it
  /// cannot be had.
  static json plan_of(const std::vector<json>& of_ranks) {
    json plan = {{"shards", json::object()}}, wanted;
    std::map<std::string, std::set<int>> holders;
    std::map<std::pair<std::string, int>, std::string> faults;
    std::vector<std::string> wrong;
    for (const json& of_rank : of_ranks) {
      const int node = of_rank.at("node");
      for (const auto& [name, why] : of_rank.at("faults").items()) {
        faults.emplace(std::pair(name, node), why.get<std::string>());
        wrong.push_back(why);
      }
      for (const json& name : of_rank.at("shards")) holders[name].insert(node);
    }
    for (const json& of_rank : of_ranks) {
      const int node = of_rank.at("node");
      if (of_rank.at("wanted").is_null() || faults.contains({config::checkpoint_metadata_file, node}))
        continue;
      wanted = of_rank.at("wanted");
      plan["index"] = node;
    }
    std::vector<std::string> missing;
    if (wanted.is_null()) missing.emplace_back(index_name);
    for (const json& name : wanted.is_null() ? json::array() : wanted) {
      for (const int node : holders[name])
        if (!faults.contains({name, node})) plan["shards"].emplace(name, node);
      if (!plan["shards"].contains(name)) missing.push_back(name);
    }
    if (missing.empty()) return plan;
    return {{"missing", fmt::format("no node has {} as it was written{}", fmt::join(missing, ", "),
                                    wrong.empty() ? "" : fmt::format(" ({})", fmt::join(wrong, "; ")))}};
  }

  void copy(std::int64_t step, const json& plan) const {
    const fs::path unfinished = unfinished_path(places_.checkpoints, step);
    world_.together([&] {
      if (world_.rank() != 0) return;
      prepare_folder(places_.checkpoints, step, {});
      for (const auto& [name, node] : plan.at("shards").items()) PosixFile::create(unfinished / name);
    });
    world_.together([&] {
      for (const auto& [name, from] : plan.at("shards").items())
        if (from.get<int>() == node()) copy_share(source_ / name, unfinished / name);
      if (plan.at("index").get<int>() == node() && ring_.is_first(world_.rank()))
        for (const char* name : {index_name, config::checkpoint_metadata_file}) {
          PosixFile::create(unfinished / name);
          copy_part(source_ / name, unfinished / name, 0, 1);
        }
    });
    world_.together([&] {
      if (world_.rank() != 0) return;
      const std::string failure = checkpoint::publish(places_.checkpoints, step);
      REQUIRE(failure.empty(), "{}", failure);
    });
  }

  void copy_share(const fs::path& from, const fs::path& to) const {
    const auto& ranks = ring_.ranks_of(node());
    copy_part(from, to, std::ranges::find(ranks, world_.rank()) - ranks.begin(), std::ssize(ranks));
  }

  /// Copies a part without checking it: the run reads the resulting checkpoint and compares its checksums.
  static void copy_part(const fs::path& from, const fs::path& to, std::int64_t part, std::int64_t parts) {
    const PosixFile source = PosixFile::open_to_read(from);
    PosixFile target = PosixFile::open_to_write(to);
    const std::int64_t size = source.size();
    const FilePart own = file_part(size, part, parts);
    std::vector<std::byte> bytes(static_cast<std::size_t>(std::min(copied_at_once, size)));
    for (std::int64_t at = own.begin; at < own.end; at += copied_at_once) {
      const std::int64_t length = std::min(copied_at_once, own.end - at);
      source.read_at(bytes.data(), length, at);
      target.write_at(bytes.data(), length, at);
    }
    target.sync();
    target.close();
  }

  const NodeRing& ring_;
  const SnapshotPlaces& places_;
  Group world_ = Group::world();
  std::vector<HeldSnapshot> held_;
  fs::path source_;  ///< folder of the snapshot that was checked last
};

}  // namespace

PublishedSnapshot publish_newest_snapshot(const NodeRing& ring, const SnapshotPlaces& places,
                                          std::int64_t newest) {
  return Publisher(ring, places).publish_newest(newest);
}

}  // namespace ztrain::checkpoint
