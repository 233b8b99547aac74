#pragma once
// What `ztrain generate` is asked for. Rank 0 reads the files and decides, and every rank works on its
// decision.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generate/generator.hpp"
#include "job/model_source.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::app {

using Tokens = std::vector<std::int32_t>;

/// Values of the command line.
struct GenerateArguments {
  std::string model, base, prompt, prompt_file, dtype, communicator, logits;
  Tokens prompt_ids;
  std::optional<Tokens> eos;
  std::int64_t max_length = 0, chunk = 128, tensor = 1, pipeline = 1;
  bool ids = false;
  bool follow = false;  ///< whether prompts from standard input follow those that are given
  generate::GenerateOptions options;
};

/// A model, the work that is asked for, and the capacity of the cache.
struct GenerateRequest {
  job::ModelSource source;
  std::vector<Tokens> prompts;
  generate::GeneratorOptions generator;
  generate::GenerateOptions options;
  std::string capacity_from;  ///< for messages: where the capacity comes from, and how to raise it
};

/// Collective. Returns rank 0's request on every rank. Throws AgreedError if the model or a prompt is not
/// valid, and if a prompt is longer than the context.
GenerateRequest make_request(const runtime::Session& session, const GenerateArguments& arguments);

/// Collective. Returns the next line of rank 0's standard input, a prompt of token ids, on every rank; an
/// empty one at its end. Throws AgreedError if it is no prompt for this request.
Tokens next_prompt(const runtime::Session& session, const GenerateRequest& request);

}  // namespace ztrain::app
