#pragma once
// A save that a thread of each rank does beside training.

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/saving.hpp"

namespace ztrain::checkpoint {

/// One thread makes all calls. Nobody else may write to the states that are saved while this lives.
class BackgroundSave {
 public:
  explicit BackgroundSave(Saving saving);
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;
  /// What is under way on this rank is given up: step_<step>.tmp stays for the next save to remove.
  ~BackgroundSave();

  /// Whether this rank's part of the present stage is under way.
  bool works() const { return works_; }
  /// Collective, where works() is false on every rank. True: the checkpoint is in its place. Throws what
  /// save() throws; then there is nothing more to do.
  bool advance();
  /// Collective: the same until the end, waiting for all ranks. idle: called again and again meanwhile.
  void finish(const std::function<void()>& idle);

  /// Bytes that this rank has written, and will have written in all.
  std::int64_t written() const { return written_; }
  std::int64_t bytes() const { return bytes_; }
  /// For which this rank has worked, in the stages that are over.
  double seconds() const { return seconds_; }
  const Saved& saved() const { return saving_.saved(); }

 private:
  void begin_work();
  void note(std::int64_t done, std::int64_t total);

  Saving saving_;
  std::atomic<bool> works_ = false, given_up_ = false;
  std::atomic<std::int64_t> written_ = 0, bytes_ = 0;
  double seconds_ = 0;  ///< the thread's, while it works
  std::thread thread_;
};

}  // namespace ztrain::checkpoint
