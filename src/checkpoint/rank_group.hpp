#pragma once
// Does the little communication that a save needs: small tables and the news of a failure. Blocking, over
// MPI_COMM_WORLD or a part of it.

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace ztrain::checkpoint {

class Group {
 public:
  static Group world();
  /// Returns the group of the ranks with the same colour, in this group's order. With a negative colour the
  /// result may not be used.
  Group split(int colour) const;
  Group(Group&& other) noexcept;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  Group& operator=(Group&&) = delete;
  ~Group();

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Returns the world rank of this group's first rank on this rank's node.
  int node() const;

  std::vector<std::int64_t> all_gather(std::int64_t value) const;
  /// Returns at rank 0 the values of all ranks, by rank. counts, at rank 0, is how many came from each.
  std::vector<std::int64_t> gather(std::span<const std::int64_t> values, std::vector<int>& counts) const;
  /// Does the inverse of gather. values and counts matter at rank 0; own_count is this rank's.
  std::vector<std::int64_t> scatter(std::span<const std::int64_t> values, const std::vector<int>& counts,
                                    std::size_t own_count) const;
  std::vector<std::string> gather_text(const std::string& text) const;
  /// Returns rank `root`'s text.
  std::string broadcast(std::string text, int root = 0) const;

  /// Sends one range and receives the other; both sides know the sizes. `to` and `from` are ranks, or -1 for
  /// nobody. Blocking.
  void exchange(std::span<const std::byte> sent, int to, std::span<std::byte> received, int from) const;

  /// If `error` is not empty on any rank, throws AgreedError on every rank: that of the lowest such rank,
  /// with the rank named.
  void agree(const std::string& error) const;

  /// Returns once every rank has called it and works() is false here; calls idle again and again until then.
  void wait_for_all(const std::function<void()>& idle, const std::function<bool()>& works = {}) const;

  /// Runs work, which must not communicate. If it fails on one rank, all ranks fail. Calls idle while this
  /// rank waits for the others.
  template <class Work>
  void together(Work work, const std::function<void()>& idle = {}) const {
    const std::string error = failure_of(work);
    if (idle) wait_for_all(idle);
    agree(error);
  }

 private:
  Group(MPI_Comm comm, bool owned);
  template <class Item>
  std::vector<Item> gather_all(std::span<const Item> items, MPI_Datatype type,
                               std::vector<int>& counts) const;

  MPI_Comm comm_;
  bool owned_;
  int rank_ = 0, size_ = 0;
};

}  // namespace ztrain::checkpoint
