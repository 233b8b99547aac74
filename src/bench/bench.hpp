#pragma once
// `ztrain bench`: how fast a deck's step is, on random tokens, and where its time goes.

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

/// Bytes of this rank: of the process, on CPU ranks; else of the device.
struct MemoryUse {
  std::int64_t planned = 0;            ///< arenas
  std::int64_t outside = 0;            ///< beside them, after the first step
  std::int64_t peak = 0;               ///< over all steps, measured (HeldMemory::peak)
  std::optional<std::int64_t> arenas;  ///< measured; nothing on CPU ranks
};

struct Bench {
  std::string device;
  bool asynchronous = false;  ///< work runs later than it is issued, and side by side
  int ranks = 1;
  std::int64_t tokens = 0;  ///< of a step, over all ranks
  std::int64_t parameters = 0;
  double model_flops = 0;     ///< of a token (model::flops_per_token)
  double executed_flops = 0;  ///< of a step of this rank: products and attention, with what is recomputed
  job::Peak peak;
  job::Peak fp8_peak;           ///< 0 where the deck has no 8-bit products
  std::vector<double> seconds;  ///< of the timed steps, in their order
  BenchSteps::Step median;      ///< the timed step in the middle; of two the slower
  BenchSteps::Step parts;       ///< a step whose ops were timed: on CPU ranks that one; else another
  Ceiling ceiling;
  MemoryUse memory;
  std::vector<KernelTime> kernels;  ///< where asked for
  std::vector<engine::Note> notes;  ///< Worker::notes()

  double tokens_per_second() const { return static_cast<double>(tokens) / median.seconds; }
  /// Of one rank: what the model needs, and what was computed.
  double model_rate() const { return model_flops * tokens_per_second() / ranks; }
  double executed_rate() const { return executed_flops / median.seconds; }
};

/// Collective. The deck's mesh is resolved and its model.vocab_size known. Throws AgreedError when the job
/// does not fit and when the loss is not finite.
Bench run_bench(const runtime::Session& session, telemetry::Console& console, const config::Deck& deck,
                const BenchRequest& request);

/// What it prints: tables for people.
std::string bench_text(const Bench& bench, const config::Deck& deck);

/// The same numbers; what is not known is null.
nlohmann::json bench_json(const Bench& bench, const config::Deck& deck, const std::string& version);

}  // namespace ztrain::bench
