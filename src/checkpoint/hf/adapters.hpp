#pragma once
// Internal to checkpoint. Low-rank adapters in a checkpoint (Hu et al., "LoRA: Low-Rank Adaptation of Large
// Language Models", 2021). Beside the weight W of a layer stand its factors A and B (config/adapters.hpp);
// the layer's weight is W + scale * B A, for experts that of each. Row i of a layer with magnitudes m is
// multiplied by m[i] / its norm (kernels/dora/record.hpp).
//
// PEFT adapts experts as parameters of their module (LoraConfig.target_parameters, ParamWrapper). Its lora_A
// [experts * rank, k] has the rows of all A, expert after expert. Its lora_B [n, rank * experts] has column q
// of the B of expert e in column q * experts + e. n of gate_up_proj counts the outputs of both projections.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/format/format.hpp"
#include "checkpoint/hf/export_plan.hpp"
#include "config/architectures.hpp"

namespace ztrain::checkpoint {

bool is_adapter(const std::string& parameter);

struct Adapters {
  std::map<std::string, AdapterPair> of_weight;  ///< adapters by the name of W
  std::int64_t rank = 0;                         ///< rank of all of them; 0: there are none
  bool dora = false;                             ///< whether all have magnitudes
};

/// Finds the adapters. Throws Error naming the checkpoint for a factor whose partner or weight is missing,
/// and for shapes that do not fit.
Adapters find_adapters(const Catalog& catalog, const std::string& checkpoint);

/// A tensor of a PEFT folder, or the part of one that a factor is.
struct AdapterTensor {
  std::string name;
  Shape shape;
  std::vector<SourcePart> parts;
};

/// Returns where PEFT's files keep each factor. Factors of the same tensor have its whole shape. architecture
/// may be null if its files do not interleave the outputs of gate and up.
std::vector<AdapterTensor> adapter_tensors(const Catalog& catalog, const config::Architecture* architecture);

/// Returns the text of PEFT's adapter_config.json.
std::string adapter_config(const Catalog& catalog, const Adapters& adapters, const AdapterFacts& facts);

/// Makes blocks of weights those with their adapter. Holds the two factors of one matrix, in fp32, and the
/// gain of each of its rows.
class Merger {
 public:
  /// scale: config::adapter_scale.
  Merger(ExportSource& source, double scale) : source_(source), scale_(scale) {}

  /// Changes fp32 elements [begin, begin + count) of the row-major W to which the adapter belongs. The
  /// elements are of one matrix: of experts, those of one.
  void add(const AdapterPair& pair, float* weight, std::int64_t begin, std::int64_t count);

 private:
  /// A matrix of a weight: that of expert `matrix`, or the only one.
  struct Loaded {
    std::int64_t a = -1, b = -1, matrix = 0;
    bool operator==(const Loaded&) const = default;
  };

  const Shape& shape_of(std::int64_t parameter) const {
    return source_.catalog().parameters[static_cast<std::size_t>(parameter)].shape;
  }
  void load(const AdapterPair& pair, std::int64_t matrix);
  std::vector<float> matrix_of(std::int64_t parameter, std::int64_t matrix);
  std::vector<float> values_of(std::int64_t parameter, std::int64_t begin, std::int64_t count);
  std::vector<double> gains_of(const AdapterPair& pair);
  void add_row(std::int64_t rank, std::int64_t row, std::int64_t first, std::int64_t count);

  ExportSource& source_;
  double scale_;
  Loaded loaded_;
  std::vector<float> a_, b_;
  std::vector<double> gains_;  ///< magnitude / norm, by row; empty: the layer has no magnitudes
  std::vector<double> row_;    ///< part of a row of B A
};

}  // namespace ztrain::checkpoint
