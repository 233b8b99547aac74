#pragma once
// Next-token generation from a checkpoint. Every step runs the whole window forward: there is no key-value
// cache yet.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/deck.hpp"
#include "engine/executor.hpp"
#include "engine/job_memory.hpp"
#include "kernels/backend.hpp"
#include "program/compile.hpp"
#include "runtime/mesh_comms.hpp"
#include "runtime/session.hpp"

namespace ztrain::train {

struct GenerateOptions {
  std::int64_t tokens = 200;
  double temperature = 0.8;  ///< 0: the likeliest token
  std::uint64_t seed = 1;
};

/// The model of a checkpoint, sharded over the session's ranks (FULL_SHARD), loaded by each rank's slices.
class Generator {
 public:
  /// Collective. Throws AgreedError when the checkpoint cannot be read.
  Generator(const runtime::Session& session, const std::string& checkpoint);

  std::int64_t vocab_size() const { return deck_.model.vocab_size; }

  /// Collective; every rank draws the same tokens. on_token is called on every rank for each new token.
  /// prompt: at least one token. Tokens further back than the model's sequence length are forgotten.
  void generate(std::vector<std::int32_t> prompt, const GenerateOptions& options,
                const std::function<void(std::int32_t)>& on_token);

 private:
  std::int32_t next(const std::vector<std::int32_t>& tokens, double temperature, std::uint64_t seed);

  config::Deck deck_;
  program::Inference job_;
  runtime::Mesh mesh_;
  kernels::ExecHandle exec_;
  engine::JobMemory memory_;
  engine::Executor load_, forward_;
};

}  // namespace ztrain::train
