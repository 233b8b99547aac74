#include "bench/calibrate/decks.hpp"

#include <fmt/format.h>

#include <utility>

namespace ztrain::bench {
namespace {

struct Sizes {
  int hidden, intermediate, layers, sequence, vocabulary, micro, accumulation;
};

/// A dense model with swiglu and grouped queries. `data` is the number of ranks with data of their own.
std::string text_of(const Sizes& s, const char* precision, int data, const std::string& model,
                    const std::string& sections) {
  return fmt::format(
      "[run]\nsteps = 1\n[data]\ntrain = [\"none\"]\nsequence = {}\n"
      "[model]\nhidden_size = {}\nintermediate_size = {}\nnum_hidden_layers = {}\nnum_attention_heads = 8\n"
      "num_key_value_heads = 4\nvocab_size = {}\n{}"
      "[batch]\nglobal = {}\nmicro = {}\n[precision]\npreset = \"{}\"\n{}",
      s.sequence, s.hidden, s.intermediate, s.layers, s.vocabulary, model, s.micro * s.accumulation * data,
      s.micro, precision, sections);
}

std::string experts_of(int size) {
  return fmt::format(
      "family = \"qwen3_moe\"\nnum_experts = 8\nnum_experts_per_tok = 2\nmoe_intermediate_size = {}\n", size);
}

constexpr Sizes tiny{64, 176, 1, 64, 512, 1, 2}, small{128, 352, 2, 128, 1024, 2, 2},
    middle{256, 688, 2, 256, 2048, 2, 2}, wide{512, 1376, 2, 256, 4096, 2, 1},
    lengthy{384, 1024, 1, 1024, 2048, 1, 2};
constexpr const char* offloaded =
    "[offload]\nparameters = \"cpu\"\noptimizer = \"cpu\"\ngradients = \"cpu\"\nactivations = \"cpu\"\n";

}  // namespace

std::vector<CalibrationDeck> calibration_decks(int ranks, bool quick) {
  std::vector<CalibrationDeck> decks;
  const auto add = [&](const char* name, const Sizes& sizes, const char* precision, int data,
                       const std::string& model = {}, const std::string& sections = {}) {
    decks.push_back({name, text_of(sizes, precision, data, model, sections)});
  };
  const bool even = ranks % 2 == 0;
  add("small", quick ? tiny : small, "bf16", ranks);
  if (quick) {
    add("small, fp32", tiny, "fp32", ranks);
    return decks;
  }
  add("middle", middle, "bf16", ranks);
  add("wide", wide, "bf16", ranks);
  add("long", lengthy, "bf16", ranks);
  add("small, fp32", small, "fp32", ranks);
  add("middle, fp32", middle, "fp32", ranks);
  add("long, fp32", lengthy, "fp32", ranks);
  add("replicated", middle, "bf16", ranks, {}, "[sharding]\nstrategy = \"zero1\"\n");
  add("recomputed", small, "bf16", ranks, {}, "[recompute]\nmode = \"full\"\n");
  add("experts, small", small, "bf16", ranks, experts_of(96));
  add("experts", middle, "bf16", ranks, experts_of(256));
  add("experts, fp32", middle, "fp32", ranks, experts_of(192));
  add("offloaded, small", small, "bf16", ranks, {}, offloaded);
  add("offloaded", wide, "bf16", ranks, {}, offloaded);
  add("offloaded, fp32", middle, "fp32", ranks, {}, offloaded);
  for (const auto& [name, sizes] :
       {std::pair{"matrices, small", small}, {"matrices", middle}, {"matrices, wide", wide}})
    add(name, sizes, "bf16", ranks, {}, "[optimizer]\nname = \"muon\"\n");
  if (!even) return decks;
  add("tensor", middle, "bf16", ranks / 2, {}, "[mesh]\ntensor = 2\n");
  add("tensor, wide", wide, "bf16", ranks / 2, {}, "[mesh]\ntensor = 2\n");
  add("tensor, fp32", middle, "fp32", ranks / 2, {}, "[mesh]\ntensor = 2\n");
  add("context, gather", lengthy, "bf16", ranks / 2, {}, "[mesh]\ncontext = 2\n");
  add("context, ring", lengthy, "bf16", ranks / 2, {}, "[mesh]\ncontext = 2\n[context]\nmethod = \"ring\"\n");
  add("context, ulysses", lengthy, "bf16", ranks / 2, {},
      "[mesh]\ncontext = 2\n[context]\nmethod = \"ulysses\"\n");
  add("experts, spread", middle, "bf16", ranks, experts_of(256), "[mesh]\nexpert = 2\n");
  if (ranks % 4 == 0) add("tensor, four", wide, "bf16", ranks / 4, {}, "[mesh]\ntensor = 4\n");
  return decks;
}

}  // namespace ztrain::bench
