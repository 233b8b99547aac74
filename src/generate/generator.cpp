#include "generate/generator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.hpp"
#include "base/philox.hpp"
#include "base/text.hpp"
#include "config/strategy.hpp"
#include "engine/connections.hpp"
#include "engine/library_kernels.hpp"
#include "job/joint_proof.hpp"
#include "job/product_algorithms.hpp"
#include "job/require_memory.hpp"
#include "job/weights.hpp"
#include "kernel_interface/with_type.hpp"
#include "model/family.hpp"
#include "plan/memory.hpp"
#include "plan/setup.hpp"

namespace ztrain::generate {
namespace {

using Clock = std::chrono::steady_clock;

/// Adds the time until the end of the scope, and the number of tokens that were processed.
class Timed {
 public:
  Timed(Speed& speed, std::int64_t tokens) : speed_(speed) { speed.tokens += tokens; }
  ~Timed() { speed_.seconds += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  Speed& speed_;
  Clock::time_point start_ = Clock::now();
};

/// Returns a job without master copies: weights are read straight into the dtype of computation.
program::JobSpec spec_on(int ranks, const config::Model& model, const GeneratorOptions& options) {
  program::JobSpec spec;
  spec.mesh[Axis::tensor] = options.tensor;
  spec.mesh[Axis::pipeline] = options.pipeline;
  spec.mesh[Axis::shard] = ranks / (options.tensor * options.pipeline);
  if (options.tensor > 1)
    spec.tensor =
        model::inference_plan(model::find_family(model.family).tensor_plan(model, options.tensor), model);
  const DType dtype = options.dtype;
  spec.strategy = config::find_strategy("FULL_SHARD");
  spec.precision = {dtype, dtype, dtype, dtype, dtype};
  return spec;
}

program::Inference compile(const runtime::Session& session, telemetry::Console& console,
                           const job::ModelSource& source, const GeneratorOptions& options) {
  telemetry::Phase phase(console, "compiling and proving the model");
  const auto graph = [&](std::int64_t tokens) {
    return plan::logits_graph(source.deck, options.dtype, tokens, options.capacity);
  };
  const program::JobSpec spec = spec_on(session.size(), source.deck.model, options);
  const auto on = [&](int rank) {
    return program::compile_inference(graph, spec, {options.capacity, options.chunk, options.every_logit},
                                      rank);
  };
  program::Inference job = session.agree("compiling the model", [&] { return on(session.rank()); });
  job::prove_together(
      session, phase, job.programs.all(), [&](int rank) { return on(rank).programs.take(); }, spec);
  return job;
}

// Order of the host's tensors of a Program. The index comes last, because some Programs have none.
enum Place : std::size_t { tokens_place, positions_place, cache_begin_place, logits_place, index_place };

std::vector<program::TensorId> host_ids(const program::InferenceTensors& p) {
  std::vector<program::TensorId> ids{p.tokens, p.positions, p.cache_begin, p.logits, p.index};
  std::erase(ids, program::no_tensor);
  return ids;
}

engine::HostTensors host_tensors(runtime::Device& device, const program::Inference& job,
                                 const program::InferenceTensors& p, const engine::JobMemory& memory) {
  std::vector<engine::DeviceRange> ranges;
  for (const program::TensorId t : host_ids(p))
    ranges.push_back({memory.address(job.load(), t), job.load().tensor(t).bytes()});
  return {device, std::move(ranges)};
}

program::Inference compile_fitting(const runtime::Session& session, telemetry::Console& console,
                                   const job::ModelSource& source, const GeneratorOptions& options,
                                   const job::Ground& ground) {
  program::Inference job = compile(session, console, source, options);
  std::vector<std::int64_t> host;
  for (const auto* p : {&job.prefill, &job.decode})
    for (const program::TensorId t : host_ids(*p)) host.push_back(job.load().tensor(t).bytes());
  const auto pinned = job::pinned_bytes(*ground.device, *ground.backend, job.programs.all(), host);
  job::require_memory(session, *ground.device, job, pinned);
  return job;
}

/// Binds products with the algorithms that are known so far.
engine::Queues& with_algorithms(const runtime::Session& session, const program::Inference& job,
                                const config::Device& options, engine::Queues& queues) {
  job::open_product_algorithms(session, job.load().mesh, options, /*multiprocessors=*/0,
                               queues.exec(runtime::compute_queue));
  return queues;
}

}  // namespace

Generator::Generator(const runtime::Session& session, telemetry::Console& console,
                     const job::ModelSource& source, const GeneratorOptions& options)
    : Generator(session, console, source, options,
                job::open_ground(session, job::open_device(session, source.deck), source.deck.device)) {}

Generator::Generator(const runtime::Session& session, telemetry::Console& console,
                     const job::ModelSource& source, const GeneratorOptions& options, job::Ground ground)
    : session_(session),
      console_(console),
      preparing_(std::in_place, console, "preparing memory and kernels"),
      options_(options),
      job_(compile_fitting(session, console, source, options, ground)),
      device_(std::move(ground.device)),
      queues_(*device_),
      held_(session, *device_),
      mesh_(session, job_.load().mesh, std::move(ground.backend)),
      arenas_(job::allocate(
          session, *device_,
          engine::with_connections(session, mesh_, device_->memory(), job_.programs.all()).backend(), held_,
          job_.programs.all())),
      close_(mesh_),
      load_(job_.load(), memory_, mesh_, with_algorithms(session, job_, source.deck.device, queues_),
            {.succession = &succession_}),
      prefill_(job_.programs.at(program::prefill_name), memory_, mesh_, queues_,
               {.succession = &succession_}),
      decode_(job_.programs.at(program::decode_name), memory_, mesh_, queues_, {.succession = &succession_}),
      prefill_host_(session.agree("allocating memory",
                                  [&] { return host_tensors(*device_, job_, job_.prefill, memory_); })),
      decode_host_(session.agree("allocating memory",
                                 [&] { return host_tensors(*device_, job_, job_.decode, memory_); })),
      vocabulary_(source.deck.model.vocab_size),
      abort_(mesh_) {
  notes_ = job::register_arenas(mesh_, arenas_);
  const std::string products =
      job::share_product_algorithms(session, source.deck.device, queues_.exec(runtime::compute_queue));
  if (!products.empty()) notes_.push_back({"products", products});
  engine::load_library_kernels(session, {&prefill_.program(), &decode_.program()}, memory_, mesh_, queues_);
  preparing_.reset();
  telemetry::Phase phase(console, "reading the weights", [this] { return load_.position(); });
  job::read_weights(session, source, job::place_of(job_.load(), job_.layout),
                    job::state_shards(job_.load(), job_.tensors, memory_, false),
                    [&](std::int64_t done, std::int64_t total) { phase.at(share_of(done, total, "read")); });
  load_.run();
}

End Generator::generate(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                        const Listener& listener) {
  const auto capacity = static_cast<std::size_t>(options_.capacity);
  REQUIRE(!prompt.empty() && prompt.size() <= capacity,
          "the prompt has {} tokens, and the context is 1 to {}: give another, or a larger --max-length",
          prompt.size(), capacity);
  prefill(prompt, listener);
  auto position = std::ssize(prompt);
  for (std::int64_t made = 0; made < options.tokens; ++made, ++position) {
    if (position == options_.capacity) return End::full;
    const std::int32_t token = choose(options, position);
    if (listener.token) listener.token(token);
    if (std::find(options.eos.begin(), options.eos.end(), token) != options.eos.end()) return End::eos;
    if (made + 1 < options.tokens && position + 1 < options_.capacity) decode(token, position);
  }
  return End::tokens;
}

void Generator::prefill(std::span<const std::int32_t> prompt, const Listener& listener) {
  const Timed timed(prefilled_, std::ssize(prompt));
  const auto chunk = static_cast<std::size_t>(job_.prefill.rows);
  telemetry::Phase phase(console_, "reading the prompt", [this] { return prefill_.position(); });
  for (std::size_t begin = 0; begin < prompt.size(); begin += chunk) {
    const auto tokens = prompt.subspan(begin, std::min(chunk, prompt.size() - begin));
    phase.at(fmt::format("token {} of {}", begin + 1, prompt.size()));
    run(job_.prefill, prefill_, prefill_host_, tokens, static_cast<std::int64_t>(begin));
    if (options_.every_logit) {
      const auto all = rows(job_.prefill, prefill_host_, std::ssize(tokens));
      if (listener.logits) listener.logits(all);
      last_ = all.last(static_cast<std::size_t>(vocabulary_));
    } else if (begin + chunk >= prompt.size()) {
      last_ = rows(job_.prefill, prefill_host_, 1);
    }
  }
}

void Generator::decode(std::int32_t token, std::int64_t position) {
  const Timed timed(decoded_, 1);
  const telemetry::Phase phase(console_, "token", position + 1, [this] { return decode_.position(); });
  run(job_.decode, decode_, decode_host_, {&token, 1}, position);
  last_ = rows(job_.decode, decode_host_, 1);
}

void Generator::run(const program::InferenceTensors& p, engine::Executor& executor, engine::HostTensors& host,
                    std::span<const std::int32_t> tokens, std::int64_t begin) {
  const auto at = [&](Place place) { return reinterpret_cast<std::int32_t*>(host.at(place)); };
  for (std::int64_t i = 0; i < p.rows; ++i) {
    at(tokens_place)[i] = i < std::ssize(tokens) ? tokens[static_cast<std::size_t>(i)] : 0;
    at(positions_place)[i] = static_cast<std::int32_t>(begin + i);
  }
  *at(cache_begin_place) = static_cast<std::int32_t>(begin);
  if (p.index != program::no_tensor) *at(index_place) = static_cast<std::int32_t>(tokens.size()) - 1;
  for (std::size_t i = 0; i < host.size(); ++i)
    if (i != logits_place) host.upload(i);
  executor.run();
  host.download(logits_place);
  host.wait([this] { mesh_.check(); });
}

std::span<const float> Generator::rows(const program::InferenceTensors& p, const engine::HostTensors& host,
                                       std::int64_t count) {
  logits_.resize(static_cast<std::size_t>(count * vocabulary_));
  with_type(job_.load().tensor(p.logits).dtype, [&]<class T>() {
    const T* from = reinterpret_cast<const T*>(host.at(logits_place));
    std::transform(from, from + count * vocabulary_, logits_.begin(),
                   [](T x) { return static_cast<float>(x); });
  });
  return logits_;
}

/// Rank 0 chooses the token for all, because ranks on different machines might choose differently.
std::int32_t Generator::choose(const GenerateOptions& options, std::int64_t position) {
  std::int32_t token = session_.agree("choosing the next token", [&] {
    const auto draw = uniform(philox(options.seed, options.stream, static_cast<std::uint64_t>(position))[0]);
    return session_.rank() == 0 ? sample(last_, options.sampling, draw) : 0;
  });
  REQUIRE(MPI_Bcast(&token, 1, MPI_INT32_T, 0, session_.world()) == MPI_SUCCESS,
          "MPI_Bcast failed while rank 0 told the next token");
  return token;
}

std::string Generator::memory_line() const {
  std::int64_t weights = 0, cache = 0;
  for (const plan::MemoryRow& row : plan::memory_rows(job_.programs.at(program::decode_name))) {
    if (row.category == name_of(program::Category::parameter)) weights = row.persistent_bytes;
    if (row.category == name_of(program::Category::cache)) cache = row.persistent_bytes;
  }
  return fmt::format("memory per rank: weights {} in {}, cache of {} tokens {}, all {}",
                     format_bytes(weights), name_of(options_.dtype), options_.capacity, format_bytes(cache),
                     format_bytes(memory_.total_bytes()));
}

}  // namespace ztrain::generate
