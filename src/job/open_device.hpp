#pragma once
// What a rank computes on.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "engine/job_memory.hpp"
#include "engine/kernel_table.hpp"
#include "job/held_memory.hpp"
#include "runtime/comm/mesh_comms.hpp"
#include "runtime/device/device.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"

namespace ztrain::job {

/// Collective. The device of this build, or with debug.asynchronous the deferred one; kernels can run on it.
/// Throws AgreedError, which says what is missing, where there is none.
std::unique_ptr<runtime::Device> open_device(const runtime::Session& session, const config::Deck& deck);
/// Collective. Opens the device as above, and reports progress of large pinned allocations to `phase` while
/// it holds a value. `phase` must outlive the device.
std::unique_ptr<runtime::Device> open_device(const runtime::Session& session, const config::Deck& deck,
                                             std::optional<telemetry::Phase>& phase);

/// [device] of a deck that says nothing.
config::Device default_device_options();

/// A rank's device and what its communicators are made by, before anything is allocated.
struct Ground {
  std::unique_ptr<runtime::Device> device;
  std::unique_ptr<runtime::CommunicatorBackend> backend;
};
/// Collective. device: null for that of the build. Throws AgreedError when [device] asks for what is not
/// there.
Ground open_ground(const runtime::Session& session, std::unique_ptr<runtime::Device> device,
                   const config::Device& options);

/// The host's memory that a job's Programs and the tensors that the host writes and reads take beside the
/// plan, in bytes; see require_memory.
std::int64_t pinned_bytes(runtime::Device& device, const runtime::CommunicatorBackend& backend,
                          const std::vector<const program::Program*>& programs,
                          const std::vector<std::int64_t>& host_tensors);

/// The memory of a job's Programs.
struct Arenas {
  std::unique_ptr<memory::NvmeMemory> nvme;    ///< null where nothing is there
  std::unique_ptr<memory::Provider> provider;  ///< of the device's; null: the device's own
  engine::JobMemory memory;
  std::string note;  ///< for the log, the same on every rank: why it is not what the backend wants; else ""
};
/// Collective. From what the backend wants its arenas to come from, if every rank gets it and has left what
/// libraries need, else from the device's memory. held is told. Throws AgreedError when it cannot be had.
Arenas allocate(const runtime::Session& session, runtime::Device& device,
                const runtime::CommunicatorBackend& backend, HeldMemory& held,
                const std::vector<const program::Program*>& programs, const memory::NvmeOptions& nvme = {},
                memory::Arena::Guards guards = memory::Arena::Guards::off);

/// Collective: registers the arenas with the communicators that work on them. Returns what the log should say
/// of the arenas and of how ranks reach each other.
std::vector<engine::Note> register_arenas(runtime::Mesh& mesh, const Arenas& arenas);

/// Runs work that the host has for the device outside of Programs, and waits for it.
void run_on(runtime::Device& device, const std::function<void()>& work);

}  // namespace ztrain::job
