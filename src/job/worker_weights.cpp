#include <algorithm>
#include <memory>
#include <set>

#include "job/weights.hpp"
#include "job/worker.hpp"

namespace ztrain::job {

void Worker::initialize(std::uint64_t seed) {
  run_on(*device_, [&] {
    initialize_weights(job_.load(), job_.tensors, job_.layout, job_.graph, memory_,
                       queues_.exec(runtime::compute_queue), seed);
  });
  if (keeps_codes()) quantize(drawn_elements(seed));
  if (std::ranges::count(job_.graph.parameters, model::Init::row_norms, &model::Parameter::init) > 0)
    write_row_norms(drawn_elements(seed));
  start_averages();
  succession_.restart();
  derive_parameters();
}

void Worker::quantize(const ReadElements& read, const DecodedElements& decoded) {
  QuantizedWeights weights(job_, memory_);
  device_->finish();
  session_.agree("quantising the weights", [&] { weights.find(read); });
  weights.agree(session_);
  session_.agree("quantising the weights", [&] {
    weights.encode(read);
    if (decoded) weights.decode(decoded);
  });
}

ReadElements Worker::drawn_elements(std::uint64_t seed) {
  memory::Provider& device = memory_.provider();
  const std::int64_t bytes = quantized_window * size_of(DType::f32);
  const std::shared_ptr<std::byte> room(device.allocate("weights before they are quantised", bytes),
                                        [&device, bytes](std::byte* data) { device.release(data, bytes); });
  return [this, &device, room, seed](int parameter, std::int64_t begin, std::int64_t count, float* to) {
    run_on(*device_, [&] {
      draw_elements(job_.graph.parameters[at(parameter)], begin,
                    {reinterpret_cast<float*>(room.get()), count}, queues_.exec(runtime::compute_queue),
                    seed);
    });
    device.read(to, room.get(), count * size_of(DType::f32));
  };
}

checkpoint::Imported Worker::import_weights(const std::string& folder,
                                            const checkpoint::ImportOptions& options) {
  const auto shards = state(false);
  return checkpoint::import_weights(folder, place_of(job_.load(), job_.layout), shards, options);
}

void Worker::complete_import(const checkpoint::Imported& imported, std::uint64_t seed) {
  const std::set<std::string> absent(imported.absent.begin(), imported.absent.end());
  run_on(*device_, [&] {
    kernels::Exec& exec = queues_.exec(runtime::compute_queue);
    draw_weights(job_.load(), job_.tensors, job_.layout, job_.graph, memory_, exec, seed,
                 [&](const model::Parameter& p) { return absent.contains(p.name); });
    zero_moments(job_.load(), job_.tensors, memory_, exec);
  });
  start_averages();
  succession_.restart();
  derive_parameters();
}

void Worker::start_averages() {
  device_->finish();
  job::start_averages(job_.load(), job_.tensors, memory_);
}

void Worker::write_row_norms(const ReadElements& read) {
  device_->finish();
  job::write_row_norms(job_.graph, place_of(job_.load(), job_.layout), state(false), read);
}

void Worker::draw_frozen(std::uint64_t seed) {
  run_on(*device_, [&] {
    job::draw_frozen(job_.load(), job_.tensors, job_.layout, job_.graph, memory_,
                     queues_.exec(runtime::compute_queue), seed);
  });
}

bool Worker::keeps_codes() const {
  return std::ranges::any_of(job_.layout.parameters(), &ParameterShape::quantized);
}

std::int64_t Worker::weight_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& shard : state_shards(job_.load(), job_.tensors, memory_, false))
    bytes += job_.layout.unit(shard.unit).shard_elements * size_of(shard.dtype);
  for (const program::UnitState& unit : job_.tensors.units)
    if (unit.quantized) bytes += job_.load().tensor(unit.parameters.slice).bytes();
  return bytes;
}

}  // namespace ztrain::job
