#pragma once
// Generates with a cache of keys and values: the prompt goes through the model a chunk at a time, then every
// new token alone.

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/executor.hpp"
#include "engine/host_tensors.hpp"
#include "engine/job_memory.hpp"
#include "generate/sampling.hpp"
#include "job/model_source.hpp"
#include "job/open_device.hpp"
#include "program/jobs/inference.hpp"
#include "runtime/comm/mesh_comms.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"

namespace ztrain::generate {

struct GeneratorOptions {
  DType dtype = DType::bf16;  ///< dtype of weights, activations and cache
  std::int64_t capacity = 0;  ///< largest number of tokens of prompt and continuation together
  std::int64_t chunk = 128;   ///< tokens of the prompt that are processed at once
  bool every_logit = false;   ///< whether the logits of all tokens of prompts are wanted
  int tensor = 1;             ///< ranks over which layers are cut; the other ranks shard their weights
  int pipeline = 1;           ///< groups of ranks, each of which has some of the layers
};

struct GenerateOptions {
  std::int64_t tokens = 200;
  Sampling sampling;
  std::uint64_t seed = 1;
  std::uint64_t stream = 0;       ///< number of the prompt; each prompt has its own draws
  std::vector<std::int32_t> eos;  ///< tokens after which a text ends
};

/// Reason that a continuation ended.
enum class End : std::uint8_t { tokens, eos, full };

/// Functions that are called on every rank as tokens and logits come.
struct Listener {
  std::function<void(std::int32_t token)> token;
  /// Gets rows of logits of the prompt's tokens, in order, [rows, vocabulary] in each call.
  std::function<void(std::span<const float> rows)> logits;
};

struct Speed {
  std::int64_t tokens = 0;
  double seconds = 0;
};

/// A model on the session's ranks; each rank loads its slices. By default weights are sharded (FULL_SHARD)
/// and each rank has the whole cache. Over `tensor` ranks, layers are cut by heads and columns, and each rank
/// has its heads' cache. Over `pipeline` groups, layers are dealt out, and each group has its layers' cache.
class Generator {
 public:
  /// Collective. Compiles, proves and plans. Throws AgreedError with the account of memory if the job does
  /// not fit the nodes, and if the weights cannot be read.
  Generator(const runtime::Session& session, telemetry::Console& console, const job::ModelSource& source,
            const GeneratorOptions& options);
  /// Returns notes for the log on how kernels were chosen.
  const std::vector<engine::Note>& notes() const { return notes_; }

  /// Collective. Continues a prompt of 1 to capacity tokens of the vocabulary. Rank 0 draws.
  End generate(std::span<const std::int32_t> prompt, const GenerateOptions& options,
               const Listener& listener);

  /// "weights 1.50 GiB, cache 64.00 MiB, ... per rank"
  std::string memory_line() const;
  Speed prefilled() const { return prefilled_; }
  Speed decoded() const { return decoded_; }

 private:
  void prefill(std::span<const std::int32_t> prompt, const Listener& listener);
  void decode(std::int32_t token, std::int64_t position);
  /// Runs a Program and copies its logits to `host`.
  void run(const program::InferenceTensors& p, engine::Executor& executor, engine::HostTensors& host,
           std::span<const std::int32_t> tokens, std::int64_t begin);
  /// Returns the first rows of a Program's logits in fp32, in logits_.
  std::span<const float> rows(const program::InferenceTensors& p, const engine::HostTensors& host,
                              std::int64_t count);
  std::int32_t choose(const GenerateOptions& options, std::int64_t position);

  Generator(const runtime::Session& session, telemetry::Console& console, const job::ModelSource& source,
            const GeneratorOptions& options, job::Ground ground);

  const runtime::Session& session_;
  telemetry::Console& console_;
  std::optional<telemetry::Phase> preparing_;  ///< lives while the members below are made
  GeneratorOptions options_;
  program::Inference job_;
  std::unique_ptr<runtime::Device> device_;
  engine::Queues queues_;
  job::HeldMemory held_;
  runtime::Mesh mesh_;
  job::Arenas arenas_;
  engine::JobMemory& memory_ = arenas_.memory;
  runtime::CloseMesh close_;
  program::Succession succession_{job_.programs};
  engine::Executor load_, prefill_, decode_;
  engine::HostTensors prefill_host_, decode_host_;
  std::int64_t vocabulary_;
  std::vector<float> logits_;
  std::span<const float> last_;  ///< the newest token's logits, in logits_
  Speed prefilled_, decoded_;
  std::vector<engine::Note> notes_;
  runtime::AbortOnError abort_;
};

}  // namespace ztrain::generate
