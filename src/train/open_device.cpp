#include "train/open_device.hpp"

#include "kernels/backend.hpp"

namespace ztrain::train {

std::unique_ptr<runtime::Device> open_device(const runtime::Session& session, const config::Deck& deck) {
  return session.agree("opening the device", [&] {
    const auto seed = static_cast<std::uint64_t>(deck.run.seed + session.rank());
    auto device = deck.debug.asynchronous ? runtime::make_deferred_device(seed)
                                          : runtime::make_device(session.local_rank());
    kernels::initialize_backend();
    return device;
  });
}

config::Device default_device_options() {
  config::Device options;
  options.communicator = "auto";
  options.reduction = "fp32_sum";
  options.cuda_graphs = "none";
  return options;
}

void run_on(runtime::Device& device, const std::function<void()>& work) {
  device.submit(runtime::compute_queue, work);
  device.finish();
}

}  // namespace ztrain::train
