#include "checkpoint/rank_group.hpp"

#include <chrono>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "runtime/session/mpi_check.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::checkpoint {

using runtime::check_mpi;

namespace {

int counted(std::size_t n) {
  REQUIRE(n <= static_cast<std::size_t>(std::numeric_limits<int>::max()),
          "checkpoint: a table of {} entries is too large", n);
  return static_cast<int>(n);
}

std::vector<int> offsets_of(const std::vector<int>& counts) {
  const auto total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  counted(total);
  std::vector<int> offsets(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
  return offsets;
}

}  // namespace

Group::Group(MPI_Comm comm, bool owned) : comm_(comm), owned_(owned) {
  if (comm_ == MPI_COMM_NULL) return;
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
}

Group Group::world() {
  return Group(MPI_COMM_WORLD, false);
}

Group Group::split(int colour) const {
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(comm_, colour < 0 ? MPI_UNDEFINED : colour, rank_, &part), "MPI_Comm_split");
  return Group(part, true);
}

Group::Group(Group&& other) noexcept
    : comm_(std::exchange(other.comm_, MPI_COMM_NULL)),
      owned_(other.owned_),
      rank_(other.rank_),
      size_(other.size_) {}

Group::~Group() {
  if (owned_ && comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
}

int Group::node() const {
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &part),
            "MPI_Comm_split_type");
  const Group node(part, true);
  int first = rank_;
  check_mpi(MPI_Bcast(&first, 1, MPI_INT, 0, part), "MPI_Bcast");
  return first;
}

std::vector<std::int64_t> Group::all_gather(std::int64_t value) const {
  std::vector<std::int64_t> all(static_cast<std::size_t>(size_));
  check_mpi(MPI_Allgather(&value, 1, MPI_INT64_T, all.data(), 1, MPI_INT64_T, comm_), "MPI_Allgather");
  return all;
}

/// Returns at rank 0 the items of all ranks, by rank.
template <class Item>
std::vector<Item> Group::gather_all(std::span<const Item> items, MPI_Datatype type,
                                    std::vector<int>& counts) const {
  const int own = counted(items.size());
  counts.assign(static_cast<std::size_t>(size_), 0);
  check_mpi(MPI_Gather(&own, 1, MPI_INT, counts.data(), 1, MPI_INT, 0, comm_), "MPI_Gather");
  const std::vector<int> offsets = offsets_of(counts);
  std::vector<Item> all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  check_mpi(MPI_Gatherv(items.data(), own, type, all.data(), counts.data(), offsets.data(), type, 0, comm_),
            "MPI_Gatherv");
  return all;
}

std::vector<std::int64_t> Group::gather(std::span<const std::int64_t> values,
                                        std::vector<int>& counts) const {
  return gather_all(values, MPI_INT64_T, counts);
}

std::vector<std::int64_t> Group::scatter(std::span<const std::int64_t> values, const std::vector<int>& counts,
                                         std::size_t own_count) const {
  const std::vector<int> offsets = offsets_of(counts);
  std::vector<std::int64_t> own(own_count);
  check_mpi(MPI_Scatterv(values.data(), counts.data(), offsets.data(), MPI_INT64_T, own.data(),
                         counted(own_count), MPI_INT64_T, 0, comm_),
            "MPI_Scatterv");
  return own;
}

std::vector<std::string> Group::gather_text(const std::string& text) const {
  std::vector<int> counts;
  const std::vector<char> all = gather_all(std::span<const char>(text), MPI_CHAR, counts);
  std::vector<std::string> texts;
  if (rank_ != 0) return texts;
  auto begin = all.begin();
  for (const int count : counts) {
    texts.emplace_back(begin, begin + count);
    begin += count;
  }
  return texts;
}

std::string Group::broadcast(std::string text, int root) const {
  int length = counted(text.size());
  check_mpi(MPI_Bcast(&length, 1, MPI_INT, root, comm_), "MPI_Bcast");
  text.resize(static_cast<std::size_t>(length));
  check_mpi(MPI_Bcast(text.data(), length, MPI_CHAR, root, comm_), "MPI_Bcast");
  return text;
}

void Group::exchange(std::span<const std::byte> sent, int to, std::span<std::byte> received, int from) const {
  const auto rank = [](int who) { return who < 0 ? MPI_PROC_NULL : who; };
  check_mpi(MPI_Sendrecv(sent.data(), counted(sent.size()), MPI_BYTE, rank(to), 0, received.data(),
                         counted(received.size()), MPI_BYTE, rank(from), 0, comm_, MPI_STATUS_IGNORE),
            "MPI_Sendrecv");
}

void Group::wait_for_all(const std::function<void()>& idle, const std::function<bool()>& works) const {
  constexpr std::chrono::milliseconds pause{2};
  for (; works && works(); std::this_thread::sleep_for(pause)) idle();
  MPI_Request all = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(comm_, &all), "MPI_Ibarrier");
  for (int done = 0;;) {
    check_mpi(MPI_Test(&all, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) return;
    idle();
    std::this_thread::sleep_for(pause);
  }
}

void Group::agree(const std::string& error) const {
  const int own = error.empty() ? size_ : rank_;
  int first = size_;
  check_mpi(MPI_Allreduce(&own, &first, 1, MPI_INT, MPI_MIN, comm_), "MPI_Allreduce");
  if (first == size_) return;
  throw runtime::AgreedError(fmt::format("rank {}: {}", first, broadcast(error, first)));
}

}  // namespace ztrain::checkpoint
