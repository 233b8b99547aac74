#include "checkpoint/neighbours/memory_snapshot.hpp"

#include <utility>

#include "checkpoint/rank_group.hpp"
#include "checkpoint/retention.hpp"

namespace ztrain::checkpoint {

MemorySnapshot::MemorySnapshot(Saving saving, const NodeRing& ring, std::filesystem::path folder,
                               std::int64_t step, int turns)
    : ring_(ring),
      folder_(std::move(folder)),
      step_(step),
      turns_(turns),
      save_(std::make_unique<BackgroundSave>(std::move(saving))) {}

bool MemorySnapshot::advance() {
  try {
    return advance_or_fail();
  } catch (const runtime::AgreedError& e) {
    if (ring_.is_first(Group::world().rank())) remove_unfinished(folder_, step_);
    throw NotSaved(e.what());
  }
}

bool MemorySnapshot::advance_or_fail() {
  if (!exchange_) {
    if (save_->advance())
      exchange_ = std::make_unique<NeighbourExchange>(ring_, unfinished_path(folder_, step_), turns_);
    return false;
  }
  if (!exchange_->advance()) return false;
  Group::world().together([&] {
    if (ring_.is_first(Group::world().rank())) publish(folder_, step_);
  });
  return true;
}

void MemorySnapshot::finish(const std::function<void()>& idle) {
  const Group world = Group::world();
  do {
    world.wait_for_all(idle, [this] { return works(); });
    idle();
  } while (!advance());
}

}  // namespace ztrain::checkpoint
