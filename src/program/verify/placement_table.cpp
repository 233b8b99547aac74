#include "program/verify/placement_table.hpp"
#include "kernels/attention/record.hpp"
#include "kernels/attention/record_ring.hpp"
#include "kernels/dropout/record.hpp"
#include "kernels/embedding/record.hpp"
#include "kernels/fp8/record.hpp"
#include "kernels/linear/record.hpp"
#include "kernels/norm/record.hpp"
#include "kernels/swiglu/record.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace ztrain::program {
namespace {

/// An op whose rule depends on more than its type has two rows.
constexpr ComputeRule rules[] = {
    {"embedding", "EE>E 0E>0 E1>1"},
    {"embedding of some rows", "E0>P 0E>0"},
    {"embedding_grad", "00>P EE>E E1>1 EP>P"},
    {"embedding_grad of some rows", "EE>0 00>P"},
    {"rmsnorm", "EE>EE 0E>00"},
    {"rmsnorm of heads", "EE>EE 0E>00 1E>10"},
    {"add_rmsnorm", "EEE>EEE 00E>000"},
    {"rmsnorm_grad", "EEEEE>EE 0E000>0P EEEPP>PP"},
    {"rmsnorm_grad of heads", "EEEEE>EE 0E000>0P EEEPP>PP 1E011>1P"},
    {"linear", "EEE>E 0EE>0 E00>1"},
    {"linear with one bias", "11E>P PEE>P EEE>E 0EE>0"},
    {"linear without bias", "EE>E 0E>0 E0>1 11>P PE>P"},
    {"linear_grad_input", "EE>E 0E>0 10>P E1>1 PE>P"},
    {"linear_grad_weight", "EE>E 00>P 1E>0 E1>1 PE>P EP>P"},
    {"linear_grad_bias", "E>E 0>P 1>0 P>P"},
    {"fp8_quantize of rows", "E>E 0>0"},
    {"fp8_quantize", "E>E", "0>00"},
    {"fp8_quantize_both", "E>EEE", "0>001"},
    {"fp8_quantize of rows by what is found", "EE>E 00>0 1E>1E"},
    {"fp8_quantize by what is found", "EE>E 0E>0E 1E>1E", "00>00"},
    {"fp8_quantize_both by what is found", "EE>E 0E>0E1 1E>1E0", "00>001"},
    {"fp8_magnitudes", "E>E 0>0 1>0"},
    {"fp8_transpose", "E>E 0>1E 1>00"},
    {"linear_fp8", "EEEEE>E 00EEE>0 0EEEE>0 EE0E0>1 EE000>1 1E1EE>P"},
    {"linear_fp8_grad_input", "EEEE>E 00EE>0 0EEE>0 1E1E>P EE0E>1 EE00>1"},
    {"linear_fp8_grad_weight", "EEEE>E 1010>P 1E1E>P 0EEE>0 EE0E>1"},
    {"rope_table", "E>E 0>0"},
    {"rope", "EE>E 00>0 1E>1 PE>P"},
    {"attention", "EEE>E 11E>1", "000>0"},
    {"attention of joined", "EE>E 1E>1", "00>0"},
    {"attention_grad", "EEEEE>E 1111E>1 EEEPE>P", "00000>0"},
    {"attention_grad of joined", "EEEE>E 111E>1 EEPE>P", "0000>0"},
    {"attention_part", "EEE>E 11E>1 000>K 0K0>K 0E0>0", "000>0"},
    {"attention_merge", "EEE>E 111>1 000>0"},
    {"attention_part_grad", "EEEEE>E 1111E>1 EEEPE>P 00000>K 0K000>K 0E000>0PP", "00000>0"},
    {"swap_blocks", "E>E 0>0 1>1"},
    {"swiglu", "E>E 0>0 1>1"},
    {"swiglu_grad", "EE>E 00>0 11>1 EP>P"},
    {"add", "EE>E 00>0 11>1 PP>P KK>K"},
    {"scale", "E>E 0>0 1>1 P>P"},
    {"dropout", "EE>E 0E>0 1E>1 PE>P"},
    {"copy", "E>E 0>0 1>1 P>P K>K"},
    {"cast", "E>E 0>0 1>1 P>P"},
    {"head_loss", "EEEE>E 0E00>P"},
    {"head_loss_grad", "EEEEE>EE.E 0E00E>P0.P"},
    {"head_logits", "EEE>EE 0E0>00 E0E>10"},
    {"head_split_loss", "EEE>E 000>P"},
    {"head_logits_grad", "EEEEEEE>E..E 000E00E>0..P 1EE0EEE>P..0"},
};

bool is_attention(const Op& op) {
  return op.type == Attention::op || op.type == AttentionGrad::op;
}

std::string row_of(const Op& op) {
  const Attributes& a = op.attributes;
  if ((op.type == Embedding::op && record_of<Embedding>(a).rows > 0) ||
      (op.type == EmbeddingGrad::op && record_of<EmbeddingGrad>(a).rows > 0))
    return op.type + " of some rows";
  if ((op.type == RmsNorm::op && record_of<RmsNorm>(a).of_heads) ||
      (op.type == RmsNormGrad::op && record_of<RmsNormGrad>(a).of_heads))
    return op.type + " of heads";
  if (is_attention(op) && record_of<Attention>(a).joined) return op.type + " of joined";
  if (op.type == Fp8Quantize::op || op.type == Fp8QuantizeBoth::op) {
    const auto quantised = record_of<Quantization>(a);
    return op.type + (quantised.rowwise ? " of rows" : "") + (quantised.found > 0 ? " by what is found" : "");
  }
  if (op.type != Linear::op) return op.type;
  const auto linear = record_of<Linear>(a);
  if (op.inputs.size() == linear.bias()) return "linear without bias";
  return linear.adds_bias >= 0 ? "linear with one bias" : "linear";
}

std::size_t groups_in(const ComputeRule& rule) {
  return rule.ways.find('>');
}

std::string_view outputs_among(std::string_view ways, std::string_view inputs) {
  for (std::string_view rest = ways; !rest.empty();) {
    const std::size_t end = std::min(rest.find(' '), rest.size()), arrow = rest.find('>');
    if (arrow >= inputs.size() && rest.starts_with(inputs)) return rest.substr(arrow + 1, end - arrow - 1);
    rest.remove_prefix(std::min(rest.size(), end + 1));
  }
  return "";
}

/// Of tokens of a part of a micro-batch, which may be cut again over the tensor axis. index: over the axes of
/// tokens.
std::string fault_of_mask(const Program& program, const Op& op, int index) {
  const auto mask = record_of<Dropout>(op.attributes);
  const Tensor& x = program.tensor(op.inputs[Dropout::x]);
  const Coordinate at(program.mesh, program.rank);
  const std::int64_t rows = x.shape[0], part = mask.part_of / program.token_order.ranks();
  if (part < rows) return fmt::format("'{}' is masked as tokens of {}", x.name, mask.part_of);
  const std::int64_t begin = index * part + (rows < part ? at[Axis::tensor] * rows : 0);
  const std::vector<TokenRun> held = program.token_order.runs(mask.part_of, begin, begin + rows);
  const std::int64_t of_others =
      op.action.micro * program.mesh.size(sequence_axes) + at.index_in(sequence_axes);
  const std::int64_t counted = program.tokens > 0 ? program.tokens : mask.part_of;  // of a micro-batch
  std::vector<TokenRun> taken{{mask.first_token - of_others * counted, rows}};
  if (mask.gap > 0) {
    taken[0].count = mask.gap_at;
    taken.push_back({taken[0].token + mask.gap_at + mask.gap, rows - mask.gap_at});
  }
  if (taken == held) return "";
  return fmt::format("'{}' is tokens {}, and is masked as {}", x.name, ztrain::to_string(held),
                     ztrain::to_string(taken));
}

/// Of a part of the queries of a micro-batch, which attend to all keys at once. index: of the part.
std::string fault_of_queries(const Program& program, const Op& op, int index) {
  const auto part = record_of<RingPart>(op.attributes);
  const Tensor& q = program.tensor(op.inputs[AttentionPart::q]);
  const Tensor& k = program.tensor(op.inputs[AttentionPart::k]);
  const std::int64_t rows = q.shape[0], all = k.shape[0];
  if (part.accumulate) return fmt::format("'{}' attends to keys of which it has all already", q.name);
  const auto compare = [](const Tensor& t, const std::vector<TokenRun>& held,
                          const std::vector<TokenRun>& said) {
    return said == held ? std::string()
                        : fmt::format("'{}' is tokens {}, and taken for {}", t.name, ztrain::to_string(held),
                                      ztrain::to_string(said));
  };
  const std::string fault =
      compare(q, program.token_order.runs(all, index * rows, (index + 1) * rows), part.queries_at);
  return fault.empty() ? compare(k, program.token_order.runs(all, 0, all), part.keys_at) : fault;
}

}  // namespace

std::string words_for(Spread spread) {
  switch (spread) {
    case 'E':
      return "the same on every rank";
    case 'P':
      return "a part of a sum";
    case 'F':
    case 'f':
      return "a shard";
    case 'K':
      return "of other ranks' tokens, or of some ranks alone";
    case '.':
      return "nothing yet";
    default:
      return fmt::format("split along dim {}", spread);
  }
}

const ComputeRule* find_compute_rule(const Op& op) {
  const std::string row = row_of(op);
  const auto it = std::ranges::find(rules, row, &ComputeRule::op);
  return it == std::end(rules) ? nullptr : &*it;
}

OperandGroups operand_groups(const Op& op, const ComputeRule& rule) {
  const auto range = [&](std::size_t begin, std::size_t end) {
    return std::vector<TensorId>(op.inputs.begin() + static_cast<std::ptrdiff_t>(begin),
                                 op.inputs.begin() + static_cast<std::ptrdiff_t>(end));
  };
  const std::size_t n = op.inputs.size();
  if (op.type == Linear::op) {
    const std::size_t bias = record_of<Linear>(op.attributes).bias();
    return n > bias ? OperandGroups{range(0, 1), range(1, bias), range(bias, n)}
                    : OperandGroups{range(0, 1), range(1, n)};
  }
  if (op.type == LinearGradInput::op) {
    const auto parts = static_cast<std::size_t>(record_of<LinearGradInput>(op.attributes).parts);
    return {range(0, 1), range(1, 1 + parts)};
  }
  if (op.type == Fp8Quantize::op || op.type == Fp8QuantizeBoth::op) {
    if (record_of<Quantization>(op.attributes).found > 0) return {range(0, 1), range(n - 1, n)};
    return {range(0, 1)};
  }
  if (op.type == Swiglu::op) return {range(0, n)};
  if (op.type == SwigluGrad::op) return {range(0, n - 1), range(n - 1, n)};
  if (op.type == AttentionPart::op) return {range(0, 1), range(1, 3), range(3, 4)};
  if (op.type == AttentionPartGrad::op)
    return {range(0, 1), range(1, 3), range(3, 5), range(5, 6), range(6, 7)};
  if (is_attention(op)) {
    // q, or all of q, k and v; k and v; o and lse, and the gradient of o; document_start.
    const std::size_t rest = record_of<Attention>(op.attributes).held();
    OperandGroups groups{range(0, 1)};
    if (rest > 1) groups.push_back(range(1, rest));
    if (rest + 1 < n) groups.insert(groups.end(), {range(rest, n - 2), range(n - 2, n - 1)});
    groups.push_back(range(n - 1, n));
    return groups;
  }
  std::size_t read = std::min(n, groups_in(rule));
  if (op.type == RmsNormGrad::op) read = record_of<RmsNormGrad>(op.attributes).has_addend ? 5 : 4;
  OperandGroups each;
  for (std::size_t i = 0; i < read; ++i) each.push_back(range(i, i + 1));
  return each;
}

std::string_view outputs_of(const ComputeRule& rule, std::string_view inputs, Axis axis) {
  const bool whole_sequences = sequence_axes.contains(axis);
  const std::string_view out = whole_sequences ? outputs_among(rule.ways_of_sequences, inputs) : "";
  return out.empty() ? outputs_among(rule.ways, inputs) : out;
}

std::string part_fault(const Program& program, const Op& op, Axis axis, std::string_view inputs) {
  const int index = Coordinate(program.mesh, program.rank)[axis];
  const bool coded = op.type == LinearFp8::op && inputs == "1E1EE";
  if (coded || (op.type == Linear::op && (inputs == "11E" || inputs == "PEE"))) {
    const std::int64_t adds =
        coded ? record_of<LinearFp8>(op.attributes).adds_bias : record_of<Linear>(op.attributes).adds_bias;
    if (adds == (index == 0 ? 1 : 0)) return "";
    return fmt::format("'{}' is added {}", program.tensor(op.inputs.back()).name,
                       index == 0 ? "by no rank" : "more than once");
  }
  if (op.type == Dropout::op && inputs.starts_with('1')) {
    const auto mask = record_of<Dropout>(op.attributes);
    const Tensor& x = program.tensor(op.inputs[Dropout::x]);
    const std::int64_t own = x.shape[1], ranks = program.mesh[axis];
    // Parts may differ in size, and none is empty: each other rank has a column before these or behind.
    const std::int64_t least = index, most = mask.columns - own - (ranks - 1 - index);
    const bool begins = index > 0 || mask.first_column == 0;
    const bool ends = index < ranks - 1 || mask.first_column == most;
    if (begins && ends && least <= mask.first_column && mask.first_column <= most) return "";
    return fmt::format("'{}' is {} columns, of part {} of {}, and is masked as those from {} on of {}",
                       x.name, own, index, ranks, mask.first_column, mask.columns);
  }
  if (op.type == Dropout::op && inputs.starts_with('0') && context_axes.contains(axis))
    return fault_of_mask(program, op, Coordinate(program.mesh, program.rank).index_in(context_axes));
  if (is_attention(op) && context_axes.contains(axis) && program.token_order.groups() > 1)
    return fmt::format("tokens are attended to as they are, and ranks have them in {} groups",
                       program.token_order.groups());
  const bool part = op.type == AttentionPart::op || op.type == AttentionPartGrad::op;
  return part && inputs.starts_with("0E") ? fault_of_queries(program, op, index) : "";
}

}  // namespace ztrain::program
