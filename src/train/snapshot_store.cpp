#include "train/snapshot_store.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/neighbours/node_folder.hpp"
#include "checkpoint/neighbours/publish_snapshot.hpp"
#include "checkpoint/rank_group.hpp"
#include "config/validate/validate.hpp"
#include "job/require_memory.hpp"

namespace ztrain::train {
namespace {

constexpr const char* preparing_folders = "preparing the folders of snapshots in memory";

}  // namespace

SnapshotStore::SnapshotStore(const runtime::Session& session, telemetry::Console& console,
                             const config::Deck& deck, const Patience& patience)
    : session_(session),
      console_(console),
      checkpoints_(config::checkpoint_folder(deck)),
      ring_(job::ring_of(session)),
      first_(ring_.is_first(session.rank())) {
  session.agree(preparing_folders, [&] {
    REQUIRE(ring_.nodes() <= checkpoint::max_files,
            "checkpoint.memory_copies = 1 is there for up to {} nodes, and the job has {}: set it to 0",
            checkpoint::max_files, ring_.nodes());
  });
  folder_ = checkpoint::node_folder(deck.checkpoint.memory_folder, token_of(deck));
  int removed = 0;
  session.agree(preparing_folders, [&] {
    if (!first_) return;
    checkpoint::make_node_folder(folder_);
    held_.emplace(hold(folder_, checkpoint::memory_key, session.host(), patience));
    checkpoint::name_owner(folder_, checkpoints_);
    removed = checkpoint::remove_leftovers(folder_, checkpoints_);
  });
  std::int64_t all = 0;
  for (const std::int64_t of_rank : checkpoint::Group::world().all_gather(removed)) all += of_rank;
  if (all > 0)
    console_.print(
        fmt::format("snapshots of {} are removed from the nodes' memory\n", count_text(all, "dead run")));
  if (ring_.nodes() == 1)
    console_.print(
        "warning: checkpoint.memory_copies = 1, and all ranks are on one node: snapshots there outlive "
        "ranks, and not the node\n");
}

std::string SnapshotStore::token_of(const config::Deck& deck) const {
  const auto token = [&](bool anew) {
    return session_.from_rank_0(session_.agree(preparing_folders, [&]() -> std::string {
      return session_.rank() == 0 ? checkpoint::snapshot_token(checkpoints_, anew) : "";
    }));
  };
  const std::string found = token(deck.checkpoint.resume != "auto");
  const std::int64_t of_another = session_.agree(preparing_folders, [&]() -> std::int64_t {
    const auto folder = checkpoint::node_folder(deck.checkpoint.memory_folder, found);
    return first_ && checkpoint::belongs_to_another(folder, checkpoints_) ? 1 : 0;
  });
  if (std::ranges::max(checkpoint::Group::world().all_gather(of_another)) == 0) return found;
  console_.print(fmt::format(
      "warning: {} is a copy of a run's folder: that run's snapshots in the nodes' memory stay its own\n",
      checkpoints_.string()));
  return token(true);
}

std::int64_t SnapshotStore::publish_newest(const std::set<std::int64_t>& damaged) const {
  const telemetry::Phase phase(console_, "looking for a snapshot in the nodes' memory");
  std::int64_t newest = session_.agree("looking for checkpoints", [&]() -> std::int64_t {
    if (session_.rank() != 0) return -1;
    for (const auto& path : checkpoint::list(checkpoints_))
      if (!damaged.contains(checkpoint::step_of(path))) return checkpoint::step_of(path);
    return -1;
  });
  newest = checkpoint::Group::world().all_gather(newest).front();
  const checkpoint::PublishedSnapshot published = checkpoint::publish_newest_snapshot(
      ring_, {.on_node = folder_, .checkpoints = checkpoints_, .host = session_.host()}, newest);
  for (const std::string& why : published.passed_over)
    console_.print(fmt::format("warning: a snapshot in the nodes' memory is passed over: {}\n", why));
  if (published.step < 0) return -1;
  const std::string none = damaged.empty() ? "there is no checkpoint" : "no checkpoint is sound";
  const std::string before = newest < 0 ? none : fmt::format("the newest checkpoint is of step {}", newest);
  console_.print(fmt::format("the nodes' memory has a snapshot of step {}, and {}: it is now {}/step_{}\n",
                             published.step, before, checkpoints_.string(), published.step));
  return published.step;
}

void SnapshotStore::hold_again() {
  try {
    checkpoint::Group::world().together([&] {
      if (!first_ || !held_->hold_again()) return;
      checkpoint::make_node_folder(folder_);
      checkpoint::name_owner(folder_, checkpoints_);
    });
  } catch (const runtime::AgreedError& e) {
    throw checkpoint::NotSaved(e.what());
  }
}

void SnapshotStore::clear() const {
  if (first_) checkpoint::remove_snapshots(folder_);
}

void SnapshotStore::remove() const {
  std::error_code unknown;
  if (first_) std::filesystem::remove_all(folder_, unknown);
}

void SnapshotStore::require_room(std::int64_t bytes) const {
  session_.agree(preparing_folders, [&] {
    if (first_) checkpoint::require_room_in_memory(folder_, bytes);
  });
}

}  // namespace ztrain::train
