#pragma once
// Internal to checkpoint. Low-rank adapters in a checkpoint (Hu et al., "LoRA: Low-Rank Adaptation of Large
// Language Models", 2021). Beside "<module>.weight" W [n, k] stand "<module>.lora_A.weight" A [rank, k] and
// "<module>.lora_B.weight" B [n, rank]; the layer's weight is W + alpha / rank * B A.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/hf/export_plan.hpp"
#include "checkpoint/reader.hpp"

namespace ztrain::checkpoint {

bool is_adapter(const std::string& parameter);

struct Adapters {
  std::map<std::string, AdapterPair> of_weight;  ///< adapters by the name of W
  std::int64_t rank = 0;                         ///< rank of all of them; 0: there are none
};

/// Finds the adapters. Throws Error naming the checkpoint for a factor whose partner or weight is missing,
/// and for shapes that do not fit.
Adapters find_adapters(const Catalog& catalog, const std::string& checkpoint);

/// Returns the text of PEFT's adapter_config.json.
std::string adapter_config(const Catalog& catalog, const Adapters& adapters, const AdapterFacts& facts);

/// Adds B A to blocks of weights. Holds the two factors of one weight, in fp32.
class Merger {
 public:
  /// scale is alpha / rank.
  Merger(Reader& reader, std::int64_t state, double scale) : reader_(reader), state_(state), scale_(scale) {}

  /// Adds to fp32 elements [begin, begin + count) of the row-major W to which these factors belong.
  void add(const AdapterPair& pair, float* weight, std::int64_t begin, std::int64_t count);

 private:
  void load(const AdapterPair& pair);
  std::vector<float> whole(std::int64_t parameter);

  Reader& reader_;
  std::int64_t state_;
  double scale_;
  std::int64_t loaded_ = -1;  ///< place of the loaded A in the catalog
  std::int64_t rank_ = 0, columns_ = 0;
  std::vector<float> a_, b_;
  std::vector<double> row_;
};

}  // namespace ztrain::checkpoint
