#include "train/snapshot_store.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/neighbours/node_folder.hpp"
#include "checkpoint/neighbours/publish_snapshot.hpp"
#include "checkpoint/rank_group.hpp"
#include "config/validate/validate.hpp"

namespace ztrain::train {
namespace {

constexpr const char* preparing_folders = "preparing the folders of snapshots in memory";

checkpoint::NodeRing ring_of(const runtime::Session& session) {
  std::vector<int> node_of;
  for (int rank = 0; rank < session.size(); ++rank) node_of.push_back(session.node_of(rank));
  return checkpoint::NodeRing(std::move(node_of));
}

}  // namespace

SnapshotStore::SnapshotStore(const runtime::Session& session, telemetry::Console& console,
                             const config::Deck& deck, const Patience& patience)
    : session_(session),
      console_(console),
      checkpoints_(config::checkpoint_folder(deck)),
      ring_(ring_of(session)),
      first_(ring_.is_first(session.rank())) {
  session.agree(preparing_folders, [&] {
    REQUIRE(ring_.nodes() <= checkpoint::max_files,
            "checkpoint.memory_copies = 1 is there for up to {} nodes, and the job has {}: set it to 0",
            checkpoint::max_files, ring_.nodes());
  });
  const std::string token = session.from_rank_0(session.agree(preparing_folders, [&]() -> std::string {
    return session.rank() == 0 ? checkpoint::snapshot_token(checkpoints_, deck.checkpoint.resume != "auto")
                               : "";
  }));
  folder_ = checkpoint::node_folder(deck.checkpoint.memory_folder, token);
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
    console_.print(fmt::format("snapshots of {} dead runs are removed from the nodes' memory\n", all));
  if (ring_.nodes() == 1)
    console_.print(
        "warning: checkpoint.memory_copies = 1, and all ranks are on one node: snapshots there outlive "
        "ranks, and not the node\n");
}

void SnapshotStore::publish_newest() const {
  const telemetry::Phase phase(console_, "looking for a snapshot in the nodes' memory");
  std::int64_t newest = session_.agree("looking for checkpoints", [&]() -> std::int64_t {
    const auto path = session_.rank() == 0 ? checkpoint::newest(checkpoints_) : std::nullopt;
    return path ? checkpoint::step_of(*path) : -1;
  });
  newest = checkpoint::Group::world().all_gather(newest).front();
  const checkpoint::PublishedSnapshot published = checkpoint::publish_newest_snapshot(
      ring_, {.on_node = folder_, .checkpoints = checkpoints_, .host = session_.host()}, newest);
  for (const std::string& why : published.passed_over)
    console_.print(fmt::format("warning: a snapshot in the nodes' memory is passed over: {}\n", why));
  if (published.step < 0) return;
  const std::string before =
      newest < 0 ? "there is no checkpoint" : fmt::format("the newest checkpoint is of step {}", newest);
  console_.print(fmt::format("the nodes' memory has a snapshot of step {}, and {}: it is now {}/step_{}\n",
                             published.step, before, checkpoints_.string(), published.step));
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
