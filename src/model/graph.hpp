#pragma once
// A model as a graph of forward ops on one micro-batch. A family emits it once; backward, recompute,
// sharding, and every parallel axis are derived from it by passes.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/attributes.hpp"
#include "base/axes.hpp"
#include "base/dtype.hpp"
#include "base/shape.hpp"
#include "base/weight_form.hpp"

namespace ztrain::model {

using ValueId = std::int32_t;

/// state: a tensor that outlives the Program, which ops read and write in place: the caches of generation,
/// the scales of weights.
enum class Role : std::uint8_t { input, parameter, activation, state };

struct Value {
  std::string name{};
  DType dtype = DType::f32;
  Shape shape{};  ///< of the tensor-parallel slice this rank holds
  Role role = Role::activation;
  int parameter = -1;  ///< index into Graph::parameters when role is parameter
};

/// One forward op. inputs and outputs in the order that its record names (kernels/NAME/record.hpp).
struct Node {
  std::string op;
  std::string name;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Attributes attributes;
  int block = 0;
  std::string piece;  ///< of its block, as recompute chooses: "norm", "qkv", ...; may be empty
};

/// uniform: in [-init_std, init_std); constant: init_std. row_norms: norms of the rows of the weight that
/// config::magnitude_of names.
enum class Init : std::uint8_t { normal, ones, zeros, uniform, constant, row_norms };

/// Elements [begin, end) of a dim.
struct Rows {
  std::int64_t begin = 0, end = 0;
};

/// Returns the name of the state that is the scales of a parameter's codes.
inline std::string scales_name(const std::string& parameter) {
  return "scales." + parameter;
}

/// Names the state that is the statistics of a parameter that is kept as codes.
inline std::string statistics_name(const std::string& parameter) {
  return "statistics." + parameter;
}

struct Parameter {
  std::string name{};  ///< Hugging Face name
  Shape shape{};       ///< logical, whole
  int unit = 0;        ///< index into Graph::units; nodes of any block may use it (tied weights)
  Init init = Init::normal;
  double init_std = 0;
  bool trainable = true;  ///< otherwise it has no gradient and no optimizer state
  /// No loss has a gradient of it: it is never trainable. It is kept whole, in fp32 (fp64 for fp64).
  bool constant = false;
  bool adapter = false;  ///< a LoRA factor or a magnitude: no model that is read has it
  /// Share of its elements that one token computes with: k of E experts.
  double share_of_token = 1;
  /// Only other stages of the pipeline use it, and this rank has nothing of it: no unit, -1, once units are
  /// grouped (program/passes/stages.hpp).
  bool elsewhere = false;
  /// Rank of the pipeline that uses the parameter too (tied embeddings), and has a copy; -1: none.
  int other_rank = -1;
  bool decay = true;  ///< takes weight decay: matrices do, norms and biases do not
  /// The optimizer steps whole matrices of its last two dims (muon); set by a pass over the graph.
  bool by_matrix = false;
  /// The first of the parameters that it must lie beside, in their order, since one product takes them all
  /// (program/passes/join_products.hpp); -1: none.
  int joined = -1;
  TensorSlice slice{};
  AxisSet state_over = state_axes;  ///< axes, some of state_axes, over which a strategy may shard its state
  Whole whole = Whole::element;     ///< what of it the family wants on one rank; the optimizer may want more
  /// Rows that are the value of a parameter that this rank holds whole, if it computes with these alone.
  /// end = 0: with all.
  Rows computed{};
  ValueId value = -1;
  /// Scales, a state, of a weight that is computed with as 8-bit codes (its value's dtype); else -1.
  ValueId scales = -1;
  /// How a frozen weight is kept if that is in 4 or 8 bits. Its value is then codes, and `statistics` a
  /// state.
  WeightForm form{};
  ValueId statistics = -1;

  bool coded() const { return scales >= 0; }
};

/// Parameters that lie in one flat range, and are reduced and stepped at once. Families make one per block;
/// program/passes/units.hpp regroups.
struct Unit {
  std::string name;
  int together = 0;         ///< units of equal numbers are gathered at once
  bool trainable = true;    ///< of all its parameters
  bool constant = false;    ///< of all its parameters
  bool kept_whole = false;  ///< its parameters are not sharded, whatever the strategy
  bool coded = false;       ///< all its parameters are computed with as 8-bit codes
  int other_rank = -1;      ///< as of all its parameters
  WeightForm form{};        ///< as of all its parameters
  bool by_matrix = false;   ///< as of all its parameters
};

/// Values of a mixture of experts from which a step's numbers are made. A step keeps them for every
/// micro-batch, as it keeps the result.
struct ExpertReport {
  std::vector<ValueId> losses;  ///< what balance_loss gives, of layers that this rank has
  std::vector<ValueId> sums;    ///< what router_sums gives, by layer with experts
  AxisSet sums_over;            ///< axes over whose ranks the sums add up (program/passes/place.hpp)
  /// Number of ranks, fp64 [1], for whose experts a layer's rows found no room; only of layers that may have
  /// too little room.
  std::vector<ValueId> overflows;
  double bias_speed = 0;  ///< how far a step moves the biases of the choice, which are constants

  bool reports() const { return !losses.empty() || !sums.empty(); }
};

/// Values of a loss on pairs of answers, which a step keeps for every micro-batch.
struct PairValues {
  ValueId report = -1;  ///< fp64 [9], PreferenceSums
  ValueId logps = -1;   ///< fp64 [slots], log-probabilities of sequences
};

/// Values of a loss against a teacher, which a step keeps for every micro-batch, and of a teacher.
struct TeacherValues {
  ValueId report = -1;           ///< fp64 [2]: sums of the tokens' cross-entropy and divergence
  ValueId words = -1;            ///< int32 [T, k], the likeliest words of each token
  ValueId log_likelihoods = -1;  ///< fp32 [T, k], theirs
};

/// Inputs of every family, one element per token of the micro-batch, flattened sequence after sequence. Names
/// are fixed: tokens int32, targets int32, weights fp32 (loss mask), positions int32, document_start int32
/// (index of the first token that the token may attend to). A loss on pairs has two more: sequences int32
/// (the slot of the token's sequence) and reference fp64 (terms of the sequences' log-probabilities under the
/// reference model). A loss against a teacher has two others: teacher_words int32 [T, k] and teacher_shares
/// fp32 [T, k] (words, and the teacher's probabilities of them).
struct Graph {
  std::vector<std::string> blocks;  ///< of nodes, in order: embedding, each transformer block, head
  std::vector<Unit> units;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<Parameter> parameters;
  ValueId result =
      -1;  ///< objective loss: fp64 [2], {sum of weighted nll, sum of weights}; logits: [1, vocabulary]
  ExpertReport experts{};
  PairValues pairs{};
  TeacherValues teacher{};

  Value& value(ValueId id) { return values[at(id)]; }
  const Value& value(ValueId id) const { return values[at(id)]; }
  ValueId add(Value value);
  /// Returns how many elements of the parameters one token computes with.
  std::int64_t active_parameters() const;
  /// Returns its value, which is of this type.
  ValueId add(Parameter parameter, DType dtype);
  Parameter& parameter_of(ValueId id) { return parameters[at(value(id).parameter)]; }
  const Parameter& parameter_of(ValueId id) const { return parameters[at(value(id).parameter)]; }
  /// Returns what the head reports, in the order of reported(); -1: the graph does not have it.
  std::array<ValueId, 6> of_head() const {
    return {result, pairs.report, pairs.logps, teacher.report, teacher.words, teacher.log_likelihoods};
  }
  std::array<ValueId*, 6> of_head() {
    return {&result, &pairs.report, &pairs.logps, &teacher.report, &teacher.words, &teacher.log_likelihoods};
  }
  /// Returns, as far as the graph has them, what the head reports, the losses of experts, the sums of routers
  /// and overflows.
  std::vector<ValueId> reported() const {
    std::vector<ValueId> all;
    for (const ValueId v : of_head())
      if (v >= 0) all.push_back(v);
    all.insert(all.end(), experts.losses.begin(), experts.losses.end());
    all.insert(all.end(), experts.sums.begin(), experts.sums.end());
    all.insert(all.end(), experts.overflows.begin(), experts.overflows.end());
    return all;
  }
};

}  // namespace ztrain::model
