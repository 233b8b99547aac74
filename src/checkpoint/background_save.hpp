#pragma once
// Saves a checkpoint on a thread of each rank, beside training.

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/saving.hpp"

namespace ztrain::checkpoint {

/// One thread makes all calls. Nothing else may write to the saved states while this lives.
class BackgroundSave {
 public:
  explicit BackgroundSave(Saving saving);
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;
  /// Gives up what is under way on this rank: step_<step>.tmp stays for the next save to remove.
  ~BackgroundSave();

  /// Returns whether this rank's part of the present stage is under way.
  bool works() const { return works_; }
  /// Collective; works() must be false on every rank. Returns true once the checkpoint is in its place.
  /// Throws what save() throws, and then must not be called again.
  bool advance();
  /// Collective. Does the same until the end and waits for all ranks; calls idle again and again meanwhile.
  void finish(const std::function<void()>& idle);

  /// Return the bytes that this rank has written, and all that it will have written.
  std::int64_t written() const { return written_; }
  std::int64_t bytes() const { return bytes_; }
  /// Returns the seconds of this rank's work in the stages that are over.
  double seconds() const { return seconds_; }
  const Saved& saved() const { return saving_.saved(); }

 private:
  void begin_work();
  void note(std::int64_t done, std::int64_t total);

  Saving saving_;
  std::atomic<bool> works_ = false, given_up_ = false;
  std::atomic<std::int64_t> written_ = 0, bytes_ = 0;
  double seconds_ = 0;  ///< the thread's while it works
  std::thread thread_;
};

}  // namespace ztrain::checkpoint
