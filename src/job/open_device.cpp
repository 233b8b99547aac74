#include "job/open_device.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "engine/host_tensors.hpp"
#include "kernels/launch/exec.hpp"
#include "plan/memory.hpp"

namespace ztrain::job {
namespace {

std::unique_ptr<runtime::Device> device_of_build(const runtime::Session& session) {
  return session.agree("opening the device", [&] {
    auto device = runtime::make_device(session.local_rank());
    kernels::initialize_backend();
    return device;
  });
}

/// Tells the effect of communicators that have not registered the arenas.
constexpr auto not_registered =
    "; the others copy through buffers of NCCL's own, without NVLink SHARP (NCCL_DEBUG=INFO with "
    "NCCL_DEBUG_SUBSYS=REG says why)";

/// What is not the device's own may be rounded up beyond what was planned: of a GPU that the plan fills, this
/// much stays for what libraries allocate.
void require_rest(const memory::Provider& provider) {
  constexpr std::int64_t rest = std::int64_t{2} << 30;
  const std::int64_t available = provider.limits().available;
  REQUIRE(available >= rest, "it leaves {} of the device's memory to libraries, and {} are wanted",
          format_bytes(available), format_bytes(rest));
}

}  // namespace

std::unique_ptr<runtime::Device> open_device(const runtime::Session& session, const config::Deck& deck) {
  return session.agree("opening the device", [&] {
    const auto seed = static_cast<std::uint64_t>(deck.run.seed + session.rank());
    auto device = deck.debug.asynchronous ? runtime::make_deferred_device(seed)
                                          : runtime::make_device(session.local_rank());
    kernels::initialize_backend();
    return device;
  });
}

std::unique_ptr<runtime::Device> open_device(const runtime::Session& session, const config::Deck& deck,
                                             std::optional<telemetry::Phase>& phase) {
  auto device = open_device(session, deck);
  device->staging().report_progress_to([&phase](std::int64_t done, std::int64_t of) {
    if (phase) phase->at(fmt::format("{} of {} of pinned memory", format_bytes(done), format_bytes(of)));
  });
  return device;
}

Ground open_ground(const runtime::Session& session, std::unique_ptr<runtime::Device> device,
                   const config::Device& options) {
  Ground ground{std::move(device), nullptr};
  if (!ground.device) ground.device = device_of_build(session);
  ground.backend = runtime::make_backend(session, *ground.device, options);
  return ground;
}

std::int64_t pinned_bytes(runtime::Device& device, const runtime::CommunicatorBackend& backend,
                          const std::vector<const program::Program*>& programs,
                          const std::vector<std::int64_t>& host_tensors) {
  const std::int64_t copied =
      device.memory().host_accessible() ? 0 : engine::HostTensors::staging_bytes(host_tensors);
  return copied + (backend.staged() ? plan::staging_bytes(programs) : 0);
}

Arenas allocate(const runtime::Session& session, runtime::Device& device,
                const runtime::CommunicatorBackend& backend, HeldMemory& held,
                const std::vector<const program::Program*>& programs, const memory::NvmeOptions& nvme,
                memory::Arena::Guards guards) {
  held.look();  // what was taken before them, as connections are, is not theirs
  auto drives = std::make_unique<memory::NvmeMemory>(nvme);
  const auto memory_of = [&](memory::Provider& provider) {
    return engine::JobMemory(programs, guards, provider, device.staging(), drives.get());
  };
  std::string note;
  if (std::unique_ptr<memory::Provider> wanted = backend.arena_memory()) {
    try {
      engine::JobMemory memory = session.agree("allocating memory", [&] {
        engine::JobMemory made = memory_of(*wanted);
        require_rest(*wanted);
        return made;
      });
      held.arenas_allocated(session);
      return {std::move(drives), std::move(wanted), std::move(memory), ""};
    } catch (const runtime::AgreedError& error) {
      note = fmt::format("the device's own memory, as what {} wants was not to be had: {}",
                         backend.describe(), error.what());
    }
  }
  engine::JobMemory memory = session.agree("allocating memory", [&] { return memory_of(device.memory()); });
  held.arenas_allocated(session);
  return {std::move(drives), nullptr, std::move(memory), std::move(note)};
}

std::vector<engine::Note> register_arenas(runtime::Mesh& mesh, const Arenas& arenas) {
  const int all = mesh.communicators();
  int registered = all;
  arenas.memory.each_region(program::Tier::device, [&](void* data, std::int64_t bytes) {
    const int with = mesh.register_memory(data, bytes);
    if (bytes > 0) registered = std::min(registered, with);
  });
  std::vector<engine::Note> notes;
  if (!arenas.note.empty()) notes.push_back({"arenas", arenas.note});
  if (arenas.provider && all > 0)
    notes.push_back({"arenas", fmt::format("registered with {} of {} communicators{}", registered, all,
                                           registered == all ? "" : not_registered)});
  if (const std::string warning = mesh.backend().warning(); !warning.empty())
    notes.push_back({"NCCL", warning, true});
  return notes;
}

config::Device default_device_options() {
  config::Device options;
  options.communicator = "auto";
  options.bf16_products = "auto";
  options.fp32_products = "auto";
  options.reduction = "fp32_sum";
  options.cuda_graphs = "none";
  options.nccl_max_ctas = 16;
  options.nccl_max_ctas_pairs = 4;
  return options;
}

void run_on(runtime::Device& device, const std::function<void()>& work) {
  device.submit(runtime::compute_queue, work);
  device.finish();
}

}  // namespace ztrain::job
