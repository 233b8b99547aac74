#pragma once
// Memory that the library gives: the device's, closed to the host, and pinned memory of the host. Neither
// begins as zeros.

#include <cstddef>
#include <map>
#include <mutex>

namespace late_cuda {

class Memory {
 public:
  enum class Kind { device, pinned };
  Memory(Kind kind, std::size_t total) : kind_(kind), total_(total) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Null where there is not that much.
  void* allocate(std::size_t bytes);
  /// False: it was not allocated here.
  bool release(void* data);
  /// Memory of the caller's becomes this kind, until give_up. False: some of it is already, or is too much.
  bool adopt(void* data, std::size_t bytes);
  /// False: it was not adopted.
  bool give_up(void* data);
  /// Bytes that nobody reads or writes count as taken, until give_room. False: there is not that much.
  bool take_room(std::size_t bytes);
  void give_room(std::size_t bytes);
  /// All of [data, data + bytes) is of one allocation.
  bool contains(const void* data, std::size_t bytes) const;
  std::size_t total() const { return total_; }
  std::size_t available() const;

  // Of the device's: open to the process between them, which nest.
  void open();
  void close();
  /// Closed whoever has opened it: how often that was, for reopen().
  int shut();
  void reopen(int opened);

 private:
  struct Region {
    std::byte* pages;  ///< null: it is the caller's
    std::size_t mapped, bytes;
  };
  void protect(const Region& region) const;

  const Kind kind_;
  const std::size_t total_;
  mutable std::mutex mutex_;
  std::map<std::byte*, Region> regions_;  ///< by what was given
  std::size_t used_ = 0;
  int opened_ = 0;
};

/// The process's device memory and pinned memory.
Memory& device_memory();
Memory& pinned_memory();

}  // namespace late_cuda
