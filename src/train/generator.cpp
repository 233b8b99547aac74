#include "train/generator.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/philox.hpp"
#include "checkpoint/checkpoint.hpp"
#include "model/family.hpp"
#include "plan/setup.hpp"
#include "train/progress.hpp"
#include "train/weights.hpp"

namespace ztrain::train {
namespace {

program::JobSpec inference_spec(const config::Deck& deck, int ranks) {
  program::JobSpec spec;
  spec.mesh[Axis::shard] = ranks;
  spec.strategy = program::find_strategy("FULL_SHARD");
  spec.precision = {deck.precision.parameters, deck.precision.gradients, deck.precision.reduce,
                    deck.precision.master, deck.precision.moments};
  return spec;
}

model::Graph logits_graph(const config::Deck& deck) {
  model::Request request;
  request.tokens = deck.data.sequence;
  request.compute = deck.precision.parameters;
  request.objective = model::Objective::logits;
  return model::build(deck, request);
}

/// Draws from softmax(logits / temperature).
template <class T>
std::int32_t draw(const T* logits, std::int64_t count, double temperature, double uniform_draw) {
  std::int64_t best = 0;
  for (std::int64_t i = 1; i < count; ++i)
    if (logits[i] > logits[best]) best = i;
  if (temperature <= 0) return static_cast<std::int32_t>(best);
  const double top = static_cast<double>(logits[best]);
  const auto weight = [&](std::int64_t i) {
    return std::exp((static_cast<double>(logits[i]) - top) / temperature);
  };
  double total = 0;
  for (std::int64_t i = 0; i < count; ++i) total += weight(i);
  double left = uniform_draw * total;
  for (std::int64_t i = 0; i < count; ++i)
    if ((left -= weight(i)) <= 0) return static_cast<std::int32_t>(i);
  return static_cast<std::int32_t>(best);
}

}  // namespace

Generator::Generator(const runtime::Session& session, const std::string& checkpoint)
    : deck_(session.agree("reading the checkpoint",
                          [&] { return deck_of(checkpoint::read_metadata(checkpoint), checkpoint); })),
      job_(session.agree("compiling the model",
                         [&] {
                           return program::compile_inference(
                               logits_graph(deck_), inference_spec(deck_, session.size()), session.rank());
                         })),
      mesh_(session, job_.forward.mesh),
      exec_(kernels::make_exec()),
      memory_(session.agree("allocating memory",
                            [&] {
                              return engine::JobMemory({&job_.load, &job_.forward});
                            })),
      load_(job_.load, memory_, mesh_, *exec_),
      forward_(job_.forward, memory_, mesh_, *exec_) {
  session.agree("reading the checkpoint", [&] {
    const auto shards = state_shards(job_.load, job_.tensors, memory_, false);
    checkpoint::load(checkpoint, place_of(job_.load, job_.layout), shards,
                     {.others = checkpoint::OtherStates::skip});
  });
  load_.run();
}

std::int32_t Generator::next(const std::vector<std::int32_t>& tokens, double temperature,
                             std::uint64_t seed) {
  const auto input = [&](const char* name) {
    return memory_.data<std::int32_t>(job_.forward, job_.forward.find(program::input_name(name, 0)));
  };
  const auto window = static_cast<std::size_t>(deck_.data.sequence);
  const std::size_t from = tokens.size() > window ? tokens.size() - window : 0, used = tokens.size() - from;
  for (std::size_t i = 0; i < window; ++i) {
    input("tokens")[i] = i < used ? tokens[from + i] : 0;
    input("positions")[i] = static_cast<std::int32_t>(i);
    input("document_start")[i] = 0;
  }
  input("index")[0] = static_cast<std::int32_t>(used - 1);
  forward_.run();
  const double u = uniform(philox(seed, 0, tokens.size())[0]);
  switch (job_.forward.tensor(job_.result).dtype) {
    case DType::f32:
      return draw(memory_.data<float>(job_.forward, job_.result), vocab_size(), temperature, u);
    case DType::bf16:
      return draw(memory_.data<bf16>(job_.forward, job_.result), vocab_size(), temperature, u);
    case DType::f16:
      return draw(memory_.data<f16>(job_.forward, job_.result), vocab_size(), temperature, u);
    default:
      return draw(memory_.data<double>(job_.forward, job_.result), vocab_size(), temperature, u);
  }
}

void Generator::generate(std::vector<std::int32_t> tokens, const GenerateOptions& options,
                         const std::function<void(std::int32_t)>& on_token) {
  REQUIRE(!tokens.empty(), "generation needs a prompt of at least one token");
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    tokens.push_back(next(tokens, options.temperature, options.seed));
    on_token(tokens.back());
  }
}

}  // namespace ztrain::train
