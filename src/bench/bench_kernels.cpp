#include "bench/bench_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/kernel_table.hpp"
#include "kernels/elementwise/copies.hpp"
#include "kernels/elementwise/init.hpp"
#include "kernels/elementwise/record.hpp"
#include "kernels/fp8/record.hpp"
#include "kernels/head/record.hpp"
#include "kernels/linear/record.hpp"
#include "plan/rates/op_time.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::bench {
namespace {

using engine::queue_of;
using program::Op;
using program::OpId;
using program::Program;
using program::Tensor;
using program::TensorId;

constexpr double wanted_seconds = 0.1;  ///< seconds of timed launches of one kernel
constexpr int most_launches = 100;
constexpr int most_launches_anew = 10;  ///< most launches of a kernel whose inputs are made anew before each
constexpr int collective_launches = 5;  ///< launches of a collective, equal on every rank
constexpr std::int64_t random_elements = 1 << 20;
constexpr std::int64_t most_copied = 256 << 20;

bool is_product(const Op& op) {
  return op.type.starts_with(Linear::op) && op.type != LinearGradBias::op;
}

std::string operand(const Tensor& t) {
  return fmt::format("{} {}", to_string(t.shape), name_of(t.dtype));
}

/// Describes joined weights as one operand, which they are.
std::string second_operand(const Program& p, const Op& op) {
  const std::size_t weight = op.type.starts_with(LinearFp8::op) ? std::size_t{LinearFp8::weight} : 1;
  Tensor t = p.tensor(op.inputs[weight]);
  std::int64_t parts = 1;
  if (op.type == Linear::op) parts = record_of<Linear>(op.attributes).parts;
  if (op.type == LinearGradInput::op) parts = record_of<LinearGradInput>(op.attributes).parts;
  for (std::size_t i = 2; i <= static_cast<std::size_t>(parts); ++i)
    t.shape[0] += p.tensor(op.inputs[i]).shape[0];
  return operand(t);
}

/// Describes the first input, and for products also the second, which tells kernels of one type apart.
std::string shape_text(const Program& p, const Op& op) {
  if (op.inputs.empty()) return op.outputs.empty() ? "" : operand(p.tensor(op.outputs[0]));
  std::string text = operand(p.tensor(op.inputs[0]));
  if (is_product(op) || op.type.starts_with(HeadLoss::op))
    text = fmt::format("{} x {}", to_string(p.tensor(op.inputs[0]).shape), second_operand(p, op));
  return program::accumulates(op) ? text + " +" : text;
}

template <class T>
void randomize(kernels::Exec& exec, std::byte* data, std::int64_t bytes, std::uint64_t stream) {
  const std::int64_t first = std::min(bytes, random_elements * static_cast<std::int64_t>(sizeof(T)));
  kernels::uniform_init<T>(exec, {reinterpret_cast<T*>(data), first / static_cast<std::int64_t>(sizeof(T))},
                           1, stream, 0, 1.0);
  for (std::int64_t done = first; done < bytes; done += first)
    kernels::copy(exec, data, data + done, std::min(first, bytes - done));
}

/// Fills floating-point inputs with random numbers. Left-over values may be NaN or denormal, which some
/// processors handle slowly, and zeros draw less power than a step does.
void randomize_inputs(job::Worker& worker, const Op& op) {
  const Program& p = worker.job().train();
  kernels::Exec& exec = worker.queues().exec(runtime::compute_queue);
  for (const TensorId id : op.inputs) {
    const Tensor& t = p.tensor(id);
    const Tensor& storage = p.tensor(p.storage(id));
    if (storage.persistent || t.category == program::Category::workspace) continue;
    if (storage.tier == program::Tier::nvme) continue;  // kernels cannot reach NVMe
    std::byte* data = worker.memory().address(p, id);
    const auto stream = static_cast<std::uint64_t>(id);
    if (t.dtype == DType::f32) randomize<float>(exec, data, t.bytes(), stream);
    if (t.dtype == DType::bf16) randomize<bf16>(exec, data, t.bytes(), stream);
    if (t.dtype == DType::f16) randomize<f16>(exec, data, t.bytes(), stream);
    if (t.dtype == DType::f64) randomize<double>(exec, data, t.bytes(), stream);
  }
}

/// Returns whether the op writes over an activation that it reads. Launched again, it would read its own
/// results, which soon are denormal or infinite, and slow.
bool overwrites(const Program& p, const Op& op) {
  return std::ranges::any_of(op.outputs, [&](TensorId out) {
    const TensorId to = p.storage(out);
    const bool read = std::ranges::any_of(op.inputs, [&](TensorId in) { return p.storage(in) == to; });
    return read && !p.tensor(to).persistent;
  });
}

/// Runs single ops of the step.
class Alone {
 public:
  explicit Alone(job::Worker& worker) : worker_(worker), clock_(worker) {}

  /// Returns the seconds of a launch. `notes` gets the bound op's notes.
  double kernel(const Op& op, std::vector<engine::Note>* notes = nullptr) {
    job::run_on(worker_.device(), [&] { randomize_inputs(worker_, op); });
    const engine::Bound bound = bind(op);
    if (notes) *notes = bound.notes;
    if (!bound.launch) {  // the op is a copy between tiers
      const auto seconds = [&](int count) { return clock_.seconds_of(queue_of(op.stream), bound, count); };
      seconds(1);
      return seconds(collective_launches) / collective_launches;
    }
    const auto time = [&](int count) { return clock_.seconds_of(queue_of(op.stream), bound.launch, count); };
    time(1);  // the first launch touches memory and loads code
    const bool anew = overwrites(worker_.job().train(), op);
    const auto again = [&](int count) {
      if (!anew) return time(count);
      double sum = 0;
      for (int i = 0; i < count; ++i) {
        job::run_on(worker_.device(), [&] { randomize_inputs(worker_, op); });
        sum += time(1);
      }
      return sum;
    };
    const double once = again(1);
    const double most = anew ? most_launches_anew : most_launches;
    const int more = static_cast<int>(std::clamp(wanted_seconds / std::max(once, 1e-9), 1.0, most));
    return again(more) / more;
  }

  double collective(const runtime::Session& session, const Op& op) {
    const engine::Bound bound = bind(op);
    clock_.seconds_of(queue_of(op.stream), bound, 1);
    session.barrier();
    return clock_.seconds_of(queue_of(op.stream), bound, collective_launches) / collective_launches;
  }

  /// Returns the seconds of the fastest of a few copies.
  double copy(const std::byte* from, std::byte* to, std::int64_t bytes) {
    kernels::Exec& exec = worker_.queues().exec(runtime::compute_queue);
    const std::function<void()> launch = [&] { kernels::copy(exec, from, to, bytes); };
    const auto time = [&] { return clock_.seconds_of(runtime::compute_queue, launch, 1); };
    time();
    double best = time();
    const int times = static_cast<int>(std::clamp(wanted_seconds / std::max(best, 1e-9), 1.0, 20.0));
    for (int i = 0; i < times; ++i) best = std::min(best, time());
    return best;
  }

 private:
  engine::Bound bind(const Op& op) {
    return engine::bind({worker_.job().train(), op, worker_.memory(), worker_.mesh(), worker_.device(),
                         worker_.queues().exec(queue_of(op.stream))});
  }

  job::Worker& worker_;
  LaunchClock clock_;
};

/// Distinct kernels in the order of their first op, and these ops.
struct Distinct {
  std::vector<KernelTime> kernels;
  std::vector<OpId> first;
};

Distinct distinct_kernels(const Program& p) {
  Distinct found;
  std::map<std::string, std::size_t> index;
  for (OpId id = 0; id < static_cast<OpId>(p.ops.size()); ++id) {
    const Op& op = p.op(id);
    if (op.type == program::Release::op) continue;
    const auto [at, is_new] = index.emplace(engine::kernel_key(p, op), found.kernels.size());
    if (is_new) {
      KernelTime k{op.type, shape_text(p, op), op.name, std::string(name_of(op.action.kind)),
                   {},      op.communicates()};
      k.flops = op.flops;
      k.bytes = op.communicates() ? static_cast<double>(op.comm.sent_bytes) : 0;
      if (!op.communicates())
        for (const double bytes : plan::bytes_touched(p, op)) k.bytes += bytes;
      found.kernels.push_back(std::move(k));
      found.first.push_back(id);
    }
    found.kernels[at->second].count += p.times(id);
  }
  return found;
}

/// Returns the bytes per second that a copy within the step's memory reads and writes.
double copy_rate(job::Worker& worker, Alone& alone) {
  const Program& p = worker.job().train();
  const std::int64_t half = worker.memory().transient_bytes(program::Tier::device) / 2 / 4096 * 4096;
  const auto tensor = std::find_if(p.tensors.begin(), p.tensors.end(), [](const Tensor& t) {
    return t.tier == program::Tier::device && !t.persistent && t.base == program::no_tensor && t.address >= 0;
  });
  if (tensor == p.tensors.end() || half == 0) return 0;
  std::byte* begin =
      worker.memory().address(p, static_cast<TensorId>(tensor - p.tensors.begin())) - tensor->address;
  const std::int64_t bytes = std::min(half, most_copied);
  return 2.0 * static_cast<double>(bytes) / alone.copy(begin, begin + half, bytes);
}

}  // namespace

Ceiling measure_ceiling(job::Worker& worker) {
  const Program& p = worker.job().train();
  const Distinct all = distinct_kernels(p);
  Alone alone(worker);
  double largest = 0;
  for (const OpId id : all.first)
    if (is_product(p.op(id))) largest = std::max(largest, p.op(id).flops);
  Ceiling ceiling;
  for (std::size_t i = 0; i < all.first.size(); ++i) {
    const Op& op = p.op(all.first[i]);
    if (!is_product(op) || op.flops < largest) continue;
    const double rate = op.flops / alone.kernel(op);
    if (rate <= ceiling.flops_per_second) continue;
    ceiling.flops_per_second = rate;
    ceiling.product = fmt::format("{} {}", op.type, all.kernels[i].shape);
  }
  ceiling.bytes_per_second = copy_rate(worker, alone);
  return ceiling;
}

std::vector<KernelTime> measure_kernels(const runtime::Session& session, job::Worker& worker,
                                        telemetry::Phase& phase) {
  const Program& p = worker.job().train();
  const StepScalars scalars = worker.scalars();
  Alone alone(worker);
  Distinct all = distinct_kernels(p);
  int done = 0;
  // Collectives come last and in the order of the step, which is the same for all members of a group.
  for (const bool communicates : {false, true})
    for (std::size_t i = 0; i < all.first.size(); ++i) {
      const Op& op = p.op(all.first[i]);
      if (op.communicates() != communicates) continue;
      phase.at(fmt::format("{} of {}, {}", ++done, all.first.size(), op.type));
      set_scalars(
          worker,
          scalars);  // run alone, the ops at the end of a step find overflows and make the optimizer skip
      std::vector<engine::Note> notes;
      all.kernels[i].seconds = communicates ? alone.collective(session, op) : alone.kernel(op, &notes);
      for (const engine::Note& note : notes)
        if (note.what == "products") all.kernels[i].way = note.text;
    }
  std::stable_sort(all.kernels.begin(), all.kernels.end(),
                   [](const KernelTime& a, const KernelTime& b) { return a.total() > b.total(); });
  return std::move(all.kernels);
}

}  // namespace ztrain::bench
