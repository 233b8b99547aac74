#include "checkpoint/neighbours/memory_snapshot.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "checkpoint/format/format.hpp"
#include "checkpoint/neighbours/node_folder.hpp"
#include "checkpoint/retention.hpp"
#include "config/hf/starting_point.hpp"
#include "files/file.hpp"
#include "layout/comm_cost.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t longest_index = std::int64_t{1} << 30;

/// Returns the number of this node's own file, or -1.
std::int64_t own_file(const fs::path& unfinished) {
  for (const auto& entry : fs::directory_iterator(unfinished))
    for (std::int64_t number = 0; number < max_files; ++number)
      if (entry.path().filename() == file_name(number)) return number;
  return -1;
}

}  // namespace

std::int64_t NeighbourExchange::Part::next() const {
  return lane ? std::min(snapshot_part, lane->end - lane->begin - at) : 0;
}

NeighbourExchange::NeighbourExchange(const NodeRing& ring, fs::path unfinished, int turns)
    : ring_(ring), unfinished_(std::move(unfinished)) {
  learn_files();
  open_files();
  spread_index();
  for (int node = 0; node < ring_.nodes(); ++node)
    rounds_ = std::max(
        rounds_, ceil_div(ring_.longest_lane(node, sizes_[static_cast<std::size_t>(node)]), snapshot_part));
  per_turn_ = std::max<std::int64_t>(1, ceil_div(rounds_, std::max(1, turns)));
}

/// Runs work, and keeps a failure: other ranks wait for the exchange whatever has failed here.
void NeighbourExchange::attempt(const std::function<void()>& work) {
  if (error_.empty()) error_ = failure_of(work);
}

void NeighbourExchange::learn_files() {
  std::int64_t number = -1, bytes = 0;
  world_.together([&] {
    if (!ring_.is_first(world_.rank())) return;
    number = own_file(unfinished_);
    if (number >= 0) bytes = PosixFile::open_to_read(unfinished_ / file_name(number)).size();
  });
  const auto numbers = world_.all_gather(number), sizes = world_.all_gather(bytes);
  for (int node = 0; node < ring_.nodes(); ++node) {
    const auto first = static_cast<std::size_t>(ring_.ranks_of(node).front());
    names_.push_back(numbers[first] < 0 ? "" : file_name(numbers[first]));
    sizes_.push_back(sizes[first]);
  }
}

/// The first rank of a node makes the copy's file; the others of the node write to it too.
void NeighbourExchange::open_files() {
  const int rank = world_.rank(), node = ring_.node_of(rank), before = ring_.before(node);
  const std::string &own = names_[static_cast<std::size_t>(node)],
                    &other = names_[static_cast<std::size_t>(before)];
  const bool copies = before != node && !other.empty();
  world_.together([&] {
    if (copies && ring_.is_first(rank)) PosixFile::create(unfinished_ / other, memory_key);
  });
  sent_.lane = ring_.sends(rank, sizes_[static_cast<std::size_t>(node)]);
  received_.lane = ring_.receives(rank, sizes_[static_cast<std::size_t>(before)]);
  world_.together([&] {
    if (sent_.lane && !own.empty()) sent_.file.emplace(PosixFile::open_to_read(unfinished_ / own));
    if (received_.lane && copies)
      received_.file.emplace(PosixFile::open_to_write(unfinished_ / other, memory_key));
    for (Part* part : {&sent_, &received_}) part->bytes.resize(static_cast<std::size_t>(part->next()));
  });
}

/// Sends the index to every node, so that each can say whether what it holds is sound.
void NeighbourExchange::spread_index() {
  const bool first = ring_.is_first(world_.rank());
  const Group firsts = world_.split(first ? 0 : -1);
  for (const char* name : {index_name, config::checkpoint_metadata_file}) {
    std::string bytes;
    if (world_.rank() == 0) attempt([&] { bytes = read_file((unfinished_ / name).string(), longest_index); });
    if (!first) continue;
    bytes = firsts.broadcast(std::move(bytes));
    if (world_.rank() == 0) continue;
    attempt([&] {  // no sync, because training waits, and the memory is lost with the node
      PosixFile file = PosixFile::create(unfinished_ / name, memory_key);
      file.write_at(bytes.data(), std::ssize(bytes), 0);
      file.close();
    });
  }
}

void NeighbourExchange::round() {
  const std::int64_t out = sent_.next(), in = received_.next();
  if (out > 0) attempt([&] { sent_.file->read_at(sent_.bytes.data(), out, sent_.lane->begin + sent_.at); });
  world_.exchange({sent_.bytes.data(), static_cast<std::size_t>(out)}, sent_.lane ? sent_.lane->rank : -1,
                  {received_.bytes.data(), static_cast<std::size_t>(in)},
                  received_.lane ? received_.lane->rank : -1);
  if (in > 0)
    attempt(
        [&] { received_.file->write_at(received_.bytes.data(), in, received_.lane->begin + received_.at); });
  sent_.at += out;
  received_.at += in;
}

bool NeighbourExchange::advance() {
  for (std::int64_t i = 0; i < per_turn_ && rounds_ > 0; ++i, --rounds_) round();
  if (rounds_ > 0) return false;
  world_.agree(error_);
  return true;
}

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
    if (!ring_.is_first(Group::world().rank())) return;
    static_cast<void>(publish(folder_, step_));  // a loss of power takes the node's memory in any case
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
