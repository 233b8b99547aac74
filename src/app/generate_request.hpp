#pragma once
// What `ztrain generate` is asked for: rank 0 reads the files and decides, and every rank works on what it
// says.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generate/generator.hpp"
#include "generate/model_source.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::app {

using Tokens = std::vector<std::int32_t>;

/// The words of the command line.
struct GenerateArguments {
  std::string model, prompt, prompt_file, dtype, communicator, logits;
  Tokens prompt_ids;
  std::optional<Tokens> eos;
  std::int64_t max_length = 0, chunk = 128, tensor = 1, pipeline = 1;
  bool ids = false;
  generate::GenerateOptions options;
};

/// A model, what it is asked for, and how much it may hold.
struct GenerateRequest {
  generate::ModelSource source;
  std::vector<Tokens> prompts;
  generate::GeneratorOptions generator;
  generate::GenerateOptions options;
  std::string capacity_from;  ///< who says how long the context may be
};

/// Collective: rank 0's request, on every rank. Throws AgreedError for a model or prompts that are none, and
/// for prompts that are longer than the context.
GenerateRequest make_request(const runtime::Session& session, const GenerateArguments& arguments);

}  // namespace ztrain::app
