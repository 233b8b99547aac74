#pragma once
// Measures for `ztrain bench` how fast a deck's step is, on random tokens, and where its time goes.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench_kernels.hpp"
#include "bench/bench_worker.hpp"
#include "job/peak.hpp"

namespace ztrain::bench {

struct BenchRequest {
  int warmup = 3;  ///< steps before the timed ones
  int steps = 10;  ///< timed, at least 1
  bool kernels = false;
};

/// Bytes of this rank's memory: of the process on CPU ranks, else of the device.
struct MemoryUse {
  std::int64_t planned = 0;            ///< arenas, by the plan
  std::int64_t outside = 0;            ///< memory beside the arenas, after the first step
  std::int64_t peak = 0;               ///< peak over all steps, as measured (HeldMemory::peak)
  std::optional<std::int64_t> arenas;  ///< arenas as measured; nothing on CPU ranks
};

struct Bench {
  std::string device;
  bool asynchronous = false;  ///< whether work runs later than it is issued, and side by side
  int ranks = 1;
  std::int64_t tokens = 0;  ///< tokens of a step, over all ranks
  std::int64_t parameters = 0;
  double model_flops = 0;  ///< FLOPs for a token (model::flops_per_token)
  /// FLOPs of this rank in a step: products and attention, including recomputation.
  double executed_flops = 0;
  job::Peak peak;
  job::Peak fp8_peak;           ///< peak of 8-bit products; 0 if the deck has none
  std::vector<double> seconds;  ///< seconds of the timed steps, in their order
  /// The median of the timed steps; of an even number, the slower of the two in the middle.
  BenchSteps::Step median;
  BenchSteps::Step parts;  ///< a step whose ops were timed: on CPU ranks the median step, else another one
  Ceiling ceiling;
  MemoryUse memory;
  std::vector<KernelTime> kernels;  ///< times of single kernels, if asked for
  std::vector<engine::Note> notes;  ///< notes of the worker (Worker::notes)

  double tokens_per_second() const { return static_cast<double>(tokens) / median.seconds; }
  /// Returns FLOP/s of one rank: those that the model needs, and those that were computed.
  double model_rate() const { return model_flops * tokens_per_second() / ranks; }
  double executed_rate() const { return executed_flops / median.seconds; }
};

/// Collective. The deck's mesh must be resolved and its model.vocab_size known. Throws AgreedError if the job
/// does not fit, and if the loss is not finite.
Bench run_bench(const runtime::Session& session, telemetry::Console& console, const config::Deck& deck,
                const BenchRequest& request);

/// Returns the report that is printed: tables for people.
std::string bench_text(const Bench& bench, const config::Deck& deck);

/// Returns the same numbers; those that are not known are null.
nlohmann::json bench_json(const Bench& bench, const config::Deck& deck, const std::string& version);

}  // namespace ztrain::bench
