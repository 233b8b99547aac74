#pragma once
// What a rank really holds, beside what was planned for it: as the driver counts its device's memory, at
// points of the run; on CPU ranks as the operating system counts its pages.

#include <cstdint>
#include <optional>
#include <string>

#include "engine/job_memory.hpp"
#include "runtime/device/device.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::job {

/// Readings of a device's memory in use, in bytes of one rank. What comes and goes between two of them is not
/// seen.
class DeviceReadings {
 public:
  /// in_use: when the device was opened, and nothing allocated.
  explicit DeviceReadings(std::int64_t in_use) : opened_(in_use), last_(in_use), peak_(in_use) {}

  /// A reading right after the arenas were allocated, and later ones.
  void arenas_allocated(std::int64_t in_use);
  void add(std::int64_t in_use);

  std::int64_t opened() const { return opened_; }
  std::int64_t arenas() const { return arenas_; }           ///< what allocating them has taken
  std::int64_t outside() const { return last_ - arenas_; }  ///< all else, at the last reading
  std::int64_t peak() const { return peak_; }

 private:
  std::int64_t opened_, arenas_ = 0, last_, peak_;
};

class HeldMemory {
 public:
  /// Collective, once the device is open and before anything is allocated. The device must outlive it.
  HeldMemory(const runtime::Session& session, runtime::Device& device);
  /// Collective, right after the arenas were allocated.
  void arenas_allocated(const runtime::Session& session);
  /// Takes a reading: one call of the driver, which waits for nothing. Nothing on CPU ranks.
  void look();

  /// Bytes of the arenas that peak() counts: of a device with memory of its own those in it, else all.
  static std::int64_t planned(const runtime::Device& device, const engine::JobMemory& memory);
  /// What the memory plan cannot know, in bytes. Resident memory of the process now, beside its arenas: code,
  /// libraries and their compiled primitives, MPI. On a GPU what was in use beside the arenas at the last
  /// reading, evenly over the ranks that share it: CUDA's context, libraries, NCCL, other processes.
  std::int64_t outside(const engine::JobMemory& memory) const;
  /// The process's largest resident memory; on a GPU the largest reading, of which other processes are a
  /// part.
  std::int64_t peak() const;
  /// Of a GPU, what its arenas have taken; nothing on CPU ranks, whose pages come when they are touched.
  std::optional<std::int64_t> arenas() const;

  /// For people: what outside() consists of; how peak() came about ("" on CPU ranks).
  std::string outside_text() const;
  std::string peak_text(const engine::JobMemory& memory) const;

 private:
  std::int64_t in_use() const;

  runtime::Device& device_;
  std::int64_t sharing_ = 1;                ///< ranks on this rank's device
  std::optional<DeviceReadings> readings_;  ///< of a device with memory of its own
};

}  // namespace ztrain::job
