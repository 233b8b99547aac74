#pragma once
// What the ops of models, and of their gradients, carry: for each op its name, the names of its operands
// in order, how many there may be, and its constants. Shapes: T tokens, d hidden, n out, k in, V
// vocabulary. Where `accumulate` is set the op adds to its last outputs, which it then also lists as its last
// inputs. Workspaces are uint8 and come last, or where it is said. Ops of the step, which no model has, are
// in program/ops/step_records.hpp.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/record.hpp"

namespace ztrain {

/// How many operands an op may have.
struct Count {
  std::size_t least = 0, most = 0;
  constexpr Count(std::size_t exactly) : least(exactly), most(exactly) {}
  constexpr Count(std::size_t at_least, std::size_t at_most) : least(at_least), most(at_most) {}
  constexpr bool allows(std::size_t count) const { return least <= count && count <= most; }
};
inline constexpr std::size_t any_number = 1 << 20;

/// The attribute of ops that may add to their last outputs.
inline constexpr const char* accumulate_key = "accumulate";

/// A record without constants.
struct NoConstants {
  static constexpr auto fields() { return std::tuple{}; }
};
/// And of one input and one output.
struct OneToOne : NoConstants {
  enum In : std::size_t { x };
  enum Out : std::size_t { y };
  static constexpr Count reads = 1, writes = 1;
};

/// tokens [T], weight [V, d] -> y [T, d]. rows: the weight is those from first_row on of a table of so many,
/// and a row that it has not is zeros; 0: it is the table.
struct Embedding {
  static constexpr std::string_view op = "embedding";
  enum In : std::size_t { tokens, weight };
  enum Out : std::size_t { y };
  static constexpr Count reads = 2, writes = 1;
  std::int64_t first_row = 0, rows = 0;
  static constexpr auto fields() {
    return std::tuple{Unusual{"first_row", &Embedding::first_row}, Unusual{"rows", &Embedding::rows}};
  }
};
/// tokens, dy -> dweight.
struct EmbeddingGrad {
  static constexpr std::string_view op = "embedding_grad";
  enum In : std::size_t { tokens, dy };
  enum Out : std::size_t { dweight };
  static constexpr Count reads{2, 3}, writes = 1;
  std::int64_t first_row = 0, rows = 0;
  bool accumulate = false;
  static constexpr auto fields() {
    return std::tuple{Unusual{"first_row", &EmbeddingGrad::first_row}, Unusual{"rows", &EmbeddingGrad::rows},
                      Given{accumulate_key, &EmbeddingGrad::accumulate}};
  }
};

/// x [T, d], weight [d] -> y, rstd [T]; of_heads: each head of x [T, heads * d] -> y, rstd [T * heads].
struct RmsNorm {
  static constexpr std::string_view op = "rmsnorm";
  enum In : std::size_t { x, weight };
  enum Out : std::size_t { y, rstd };
  static constexpr Count reads = 2, writes = 2;
  double eps = 0;
  bool of_heads = false;
  static constexpr auto fields() {
    return std::tuple{Given{"eps", &RmsNorm::eps}, Unusual{"of_heads", &RmsNorm::of_heads}};
  }
};
/// x, addend, weight -> sum = x + addend, y = rmsnorm(sum), rstd.
struct AddRmsNorm {
  static constexpr std::string_view op = "add_rmsnorm";
  enum In : std::size_t { x, addend, weight };
  enum Out : std::size_t { sum, y, rstd };
  static constexpr Count reads = 3, writes = 3;
  double eps = 0;
  static constexpr auto fields() { return std::tuple{Given{"eps", &AddRmsNorm::eps}}; }
};
/// x, weight, rstd, dy, (addend [T, d], which is added to dx) -> dx, dweight, workspace.
struct RmsNormGrad {
  static constexpr std::string_view op = "rmsnorm_grad";
  enum In : std::size_t { x, weight, rstd, dy, addend };
  enum Out : std::size_t { dx, dweight, workspace };
  static constexpr Count reads{4, 6}, writes = 3;
  bool accumulate = false;  ///< to dweight
  bool of_heads = false;
  bool has_addend = false;
  static constexpr auto fields() {
    return std::tuple{Given{accumulate_key, &RmsNormGrad::accumulate},
                      Unusual{"of_heads", &RmsNormGrad::of_heads}, Given{"addend", &RmsNormGrad::has_addend}};
  }
};

/// x [T, k], weight [n, k]..., (bias [n]...) -> y [T, n], workspace. parts: weights, and biases, whose rows
/// follow one another in memory; n is the sum of theirs.
struct Linear {
  static constexpr std::string_view op = "linear";
  enum In : std::size_t { x, weight };
  enum Out : std::size_t { y };
  static constexpr Count reads{2, any_number}, writes{1, 2};
  std::int64_t parts = 1;
  /// -1: every rank adds the bias; where y is a part of a sum over ranks: 1 on the one that adds it, 0 on the
  /// others.
  std::int64_t adds_bias = -1;
  constexpr std::size_t bias() const { return weight + static_cast<std::size_t>(parts); }
  static constexpr auto fields() {
    return std::tuple{Unusual{"parts", &Linear::parts}, Unusual{"adds_bias", &Linear::adds_bias}};
  }
};
/// Of a layer of so many weights.
struct LinearGrad {
  bool accumulate = false;
  std::int64_t parts = 1;
  static constexpr auto fields() {
    return std::tuple{Given{accumulate_key, &LinearGrad::accumulate}, Given{"parts", &LinearGrad::parts}};
  }
};
/// dy [T, n], weight [n, k]... -> dx [T, k], workspace.
struct LinearGradInput : LinearGrad {
  static constexpr std::string_view op = "linear_grad_input";
  enum In : std::size_t { dy, weight };
  enum Out : std::size_t { dx };
  static constexpr Count reads{2, any_number}, writes = 2;
};
/// dy [T, n], x [T, k] -> dweight [n, k]..., workspace.
struct LinearGradWeight : LinearGrad {
  static constexpr std::string_view op = "linear_grad_weight";
  enum In : std::size_t { dy, x };
  enum Out : std::size_t { dweight };
  static constexpr Count reads{2, any_number}, writes{2, any_number};
};
/// dy [T, n] -> dbias [n]...
struct LinearGradBias : LinearGrad {
  static constexpr std::string_view op = "linear_grad_bias";
  enum In : std::size_t { dy };
  enum Out : std::size_t { dbias };
  static constexpr Count reads{1, any_number}, writes{1, any_number};
};

/// positions [T] -> table [T, head_dim].
struct RopeTable {
  static constexpr std::string_view op = "rope_table";
  enum In : std::size_t { positions };
  enum Out : std::size_t { table };
  static constexpr Count reads = 1, writes = 1;
  double theta = 0;
  std::string scaling;  ///< "default" or "llama3", which has the rest
  double factor = 0, low_freq_factor = 0, high_freq_factor = 0;
  std::int64_t original_max_position = 0;
  static constexpr auto fields() {
    return std::tuple{Given{"theta", &RopeTable::theta},
                      Given{"scaling", &RopeTable::scaling},
                      Given{"factor", &RopeTable::factor},
                      Given{"low_freq_factor", &RopeTable::low_freq_factor},
                      Given{"high_freq_factor", &RopeTable::high_freq_factor},
                      Given{"original_max_position", &RopeTable::original_max_position}};
  }
};
/// x [T, heads * head_dim], table -> y. heads: how many of each row are turned; 0: all.
struct Rope {
  static constexpr std::string_view op = "rope";
  enum In : std::size_t { x, table };
  enum Out : std::size_t { y };
  static constexpr Count reads = 2, writes = 1;
  bool inverse = false;
  std::int64_t heads = 0;
  static constexpr auto fields() {
    return std::tuple{Given{"inverse", &Rope::inverse}, Unusual{"heads", &Rope::heads}};
  }
};

/// q [T, heads * head_dim], k, v, document_start [T] -> o, lse [T, heads], (workspace); joined: qkv,
/// document_start, where q, k and v are columns of one matrix. The rest as in
/// kernel_interface/attention_shape.hpp.
struct Attention {
  static constexpr std::string_view op = "attention";
  enum In : std::size_t { q, k, v };
  enum Out : std::size_t { o, lse, workspace };
  static constexpr Count reads{2, 4}, writes{2, 3};
  std::int64_t heads = 0, kv_heads = 0, window = 0;
  std::int64_t sequence = 0, documents = 0;
  bool deterministic = true;
  bool joined = false;
  /// The inputs that hold q, k and v.
  constexpr std::size_t held() const { return joined ? 1 : 3; }
  constexpr std::size_t document_start() const { return held(); }
  static constexpr auto fields() {
    return std::tuple{
        Given{"heads", &Attention::heads},           Given{"kv_heads", &Attention::kv_heads},
        Unusual{"window", &Attention::window},       Unusual{"sequence", &Attention::sequence},
        Unusual{"documents", &Attention::documents}, Unusual{"deterministic", &Attention::deterministic},
        Unusual{"joined", &Attention::joined}};
  }
};
/// q, k, v (or qkv), o, lse, do, document_start -> dq, dk, dv (or dqkv), workspace.
struct AttentionGrad : Attention {
  static constexpr std::string_view op = "attention_grad";
  constexpr std::size_t attended() const { return held(); }
  constexpr std::size_t log_sums() const { return held() + 1; }
  constexpr std::size_t dout() const { return held() + 2; }
  constexpr std::size_t document_start() const { return held() + 3; }
  constexpr std::size_t spare() const { return held(); }  ///< the workspace
  static constexpr Count reads{5, 7}, writes{2, 4};
};
/// rows [T, heads * head_dim], begin [1], cache [heads * capacity, head_dim] -> the cache, whose rows from
/// `begin` on of each head are written.
struct CacheAppend : NoConstants {
  static constexpr std::string_view op = "cache_append";
  enum In : std::size_t { rows, begin, cache };
  enum Out : std::size_t { appended };
  static constexpr Count reads = 3, writes = 1;
};
/// q, k_cache, v_cache, begin [1] -> o. The constants of the attention that it was; of them heads, kv_heads
/// and window count.
struct AttentionCached : Attention {
  static constexpr std::string_view op = "attention_cached";
  enum In : std::size_t { query, k_cache, v_cache, begin };
  static constexpr Count reads = 4, writes = 1;
};

/// gate [T, n], up [T, n] -> y [T, n], or gate_up [T, 2n] -> y.
struct Swiglu : NoConstants {
  static constexpr std::string_view op = "swiglu";
  enum In : std::size_t { gate, up };
  enum Out : std::size_t { y };
  static constexpr Count reads{1, 2}, writes = 1;
};
/// gate, up, dy -> dgate, dup, or gate_up, dy -> dgate_up.
struct SwigluGrad : NoConstants {
  static constexpr std::string_view op = "swiglu_grad";
  /// The last of so many inputs.
  static constexpr std::size_t dy(std::size_t inputs) { return inputs - 1; }
  static constexpr Count reads{2, 3}, writes{1, 2};
};
/// x, addend -> x + addend.
struct Add : NoConstants {
  static constexpr std::string_view op = "add";
  enum In : std::size_t { x, addend };
  enum Out : std::size_t { sum };
  static constexpr Count reads = 2, writes = 1;
};
/// x -> y = factor * x.
struct Scale {
  static constexpr std::string_view op = "scale";
  enum In : std::size_t { x };
  enum Out : std::size_t { y };
  static constexpr Count reads = 1, writes = 1;
  double factor = 0;
  static constexpr auto fields() { return std::tuple{Given{"factor", &Scale::factor}}; }
};
/// x [T, n], scalars -> y; nodes read x alone, and outside training y is x.
struct Dropout {
  static constexpr std::string_view op = "dropout";
  static constexpr const char* first_token_key = "first_token";
  enum In : std::size_t { x, scalars };
  enum Out : std::size_t { y };
  static constexpr Count reads = 2, writes = 1;
  double rate = 0;
  std::int64_t key = 0;          ///< bits of a hash: the layer's stream
  std::int64_t first_token = 0;  ///< of the step (number_tokens)
  /// From this row on tokens are so much later in the step, since other ranks have those between; 0: none.
  std::int64_t gap_at = 0, gap = 0;
  /// x is the tokens from part_begin on, as ranks have them, of so many of a micro-batch; 0: it is all.
  std::int64_t part_of = 0, part_begin = 0;
  /// x is the columns from first_column on of so many; 0: it is all of them.
  std::int64_t columns = 0, first_column = 0;
  static constexpr auto fields() {
    return std::tuple{Given{"rate", &Dropout::rate},
                      Given{"key", &Dropout::key},
                      Given{first_token_key, &Dropout::first_token},
                      Unusual{"gap_at", &Dropout::gap_at},
                      Unusual{"gap", &Dropout::gap},
                      Unusual{"part_of", &Dropout::part_of},
                      Unusual{"part_begin", &Dropout::part_begin},
                      Unusual{"columns", &Dropout::columns},
                      Unusual{"first_column", &Dropout::first_column}};
  }
};
/// x -> y, the same bytes.
struct Copy : OneToOne {
  static constexpr std::string_view op = "copy";
};
/// x [T, d], index [1] -> y [1, d].
struct SelectRow : NoConstants {
  static constexpr std::string_view op = "select_row";
  enum In : std::size_t { x, index };
  enum Out : std::size_t { y };
  static constexpr Count reads = 2, writes = 1;
};

/// h [T, d], weight [V, d], targets [T], token_weights [T] -> loss fp64 [2], workspace.
struct HeadLoss : NoConstants {
  static constexpr std::string_view op = "head_loss";
  enum In : std::size_t { h, weight, targets, token_weights };
  enum Out : std::size_t { loss, workspace };
  static constexpr Count reads = 4, writes = 2;
};

/// Every op whose scales may be by row: of codes.
struct Quantization {
  bool rowwise = false;
  /// Of a node: bits of the AxisSet over whose ranks' parts a scale goes; of linear_fp8: its gradient's.
  std::int64_t axes = 0;
  /// Of an op: of so many ranks the largest magnitudes are the last input; 0: it finds its own.
  std::int64_t found = 0;
  static constexpr auto fields() {
    using Q = Quantization;
    return std::tuple{Given{"rowwise", &Q::rowwise}, Unusual{"axes", &Q::axes}, Unusual{"found", &Q::found}};
  }
};
/// x [T, k], (columns [k], which x is multiplied by), (found [ranks * 1 or T]) -> codes [T, k], scales [1 or
/// T], (workspace where there is one scale, which is not found).
struct Fp8Quantize : Quantization {
  static constexpr std::string_view op = "fp8_quantize";
  enum In : std::size_t { x, columns };
  enum Out : std::size_t { codes, scales, workspace };
  static constexpr Count reads{1, 3}, writes{2, 3};
};
/// x [T, k], (found [ranks]) -> codes [T, k], scales [1], transposed codes [k, T], (workspace). rowwise is
/// false.
struct Fp8QuantizeBoth : Quantization {
  static constexpr std::string_view op = "fp8_quantize_both";
  enum In : std::size_t { x };
  enum Out : std::size_t { codes, scales, transposed, workspace };
  static constexpr Count reads{1, 2}, writes{3, 4};
};
/// x [T, k] codes, x_scales, weight [n, k] codes, weight_scales, (bias [n]) -> y [T, n], workspace.
struct LinearFp8 : Quantization {
  static constexpr std::string_view op = "linear_fp8";
  enum In : std::size_t { x, x_scales, weight, weight_scales, bias };
  enum Out : std::size_t { y, workspace };
  static constexpr Count reads{4, 5}, writes = 2;
  std::int64_t adds_bias = -1;  ///< as Linear's
  static constexpr auto fields() {
    return std::tuple_cat(Quantization::fields(), std::tuple{Unusual{"adds_bias", &LinearFp8::adds_bias}});
  }
};

}  // namespace ztrain
