#include "engine/host_tensors.hpp"

#include <utility>

#include "base/shape.hpp"

namespace ztrain::engine {
namespace {

constexpr std::int64_t alignment = 256;

std::vector<std::int64_t> offsets_of(const std::vector<DeviceRange>& ranges) {
  std::vector<std::int64_t> offsets{0};
  for (const DeviceRange& range : ranges)
    offsets.push_back(offsets.back() + round_up(range.bytes, alignment));
  return offsets;
}

}  // namespace

std::int64_t HostTensors::staging_bytes(const std::vector<std::int64_t>& bytes) {
  std::int64_t sum = 0;
  for (const std::int64_t each : bytes) sum += round_up(each, alignment);
  return sum;
}

HostTensors::HostTensors(runtime::Device& device, std::vector<DeviceRange> ranges)
    : device_(device),
      direct_(device.memory().host_accessible()),
      ranges_(std::move(ranges)),
      offsets_(offsets_of(ranges_)),
      staging_("input and result", direct_ ? 0 : offsets_.back(), memory::Arena::Guards::off,
               device.staging()),
      through_(device.make_event()) {}

std::byte* HostTensors::at(std::size_t i) const {
  return direct_ ? ranges_[i].data : staging_.at(offsets_[i]);
}

void HostTensors::upload(std::size_t i) {
  if (!direct_) device_.copy_in(runtime::compute_queue, ranges_[i].data, at(i), ranges_[i].bytes);
}

void HostTensors::download(std::size_t i) {
  if (!direct_) device_.copy_out(runtime::compute_queue, at(i), ranges_[i].data, ranges_[i].bytes);
}

void HostTensors::wait(const std::function<void()>& meanwhile) {
  device_.record(through_, runtime::compute_queue);
  while (!device_.done(through_)) meanwhile();
}

}  // namespace ztrain::engine
