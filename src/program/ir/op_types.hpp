#pragma once
// The op table: one row per op kind, with its adjoint rule, its cost and the workspace of its forward. Its
// kernel is the row of the same name in engine/kernel_table.cpp.
//
// clang-format off
// Operands (T tokens, d hidden, n out, k in, V vocabulary; [accumulate] marks an output that the op may add to, and then
// also lists as its last input):
//   embedding          tokens[T] W[V,d]                      -> x[T,d]       first_row, rows: W is those from first_row on of
//                                                            a table of so many; a row that it has not is zeros
//   embedding_grad     tokens[T] dx[T,d]                     -> dW[V,d] [accumulate]     first_row, rows
//   rmsnorm            x[T,d] w[d]                           -> y[T,d] rstd[T]                          eps
//                      or each head of x[T,heads*d]          -> y, rstd[T*heads]                     (of_heads 1)
//   add_rmsnorm        a b w                                 -> r = a + b, y = rmsnorm(r), rstd         eps
//   rmsnorm_grad       x w rstd dy (addend[T,d])             -> dx[T,d] dw[d] [accumulate] workspace    addend 0|1
//   linear             x[T,k] W[n,k]... (b[n]...)            -> y[T,n] workspace        parts: weights, and biases, whose rows
//                                                            follow one another in memory; n: the sum of theirs;
//                                                            adds_bias 0: the bias is not read
//   linear_grad_input  dy[T,n] W[n,k]...                     -> dx[T,k] [accumulate] workspace            parts
//   linear_grad_weight dy[T,n] x[T,k]                        -> dW[n,k]... [accumulate] workspace         parts
//   fp8_quantize       x[T,k] (c[k])                        -> codes[T,k] scales[1 or T] (workspace)      rowwise 0|1; of x
//                                                            times c; the workspace where rowwise is 0
//   fp8_quantize_both  x[T,k]                               -> codes[T,k] scales[1] codes^T[k,T] workspace     rowwise 0
//   fp8_transpose      codes[T,k]                           -> codes[k,T] (ones[k])
//   linear_fp8         x[T,k] sx W[n,k] sW (b[n])           -> y[T,n] workspace      rowwise 0|1; codes and their scales
//   linear_fp8_grad_input  dy[T,n] sdy W^T[k,n] sW          -> dx[T,k] [accumulate] workspace             rowwise
//   linear_fp8_grad_weight dy^T[n,T] sdy x^T[k,T] sx        -> dW[n,k] [accumulate] workspace             rowwise
//   linear_grad_bias   dy[T,n]                               -> db[n]... [accumulate]                     parts
//   rope_table         positions[T]                          -> table[T,head_dim]    theta, scaling, ...
//   rope               x[T,heads*head_dim] table             -> y                    inverse 0|1, (heads: how many are turned)
//   attention          q k v document_start[T]               -> o lse[T,heads] (workspace)    heads, kv_heads, window (0: none),
//                      or qkv document_start                 (sequence, documents, deterministic: kernel_interface/attention_shape.hpp)
//                                                            joined 0|1: q, k and v are columns of one input
//                                                            (keys, first_query: q is those from first_query on of so many
//                                                            tokens, k and v are of all)
//   attention_grad     q k v o lse do document_start         -> dq dk dv workspace
//                      or qkv o lse do document_start        -> dqkv workspace
//   cache_append       rows[T,H*hd] begin[1] cache[H*C,hd]   -> cache, rows begin .. of each of H heads
//   attention_cached   q k_cache v_cache begin[1]            -> o                         heads, kv_heads, (window)
//   swiglu             gate[T,n] up[T,n]                     -> y[T,n]
//                      or gate_up[T,2n]                      -> y[T,n]
//   swiglu_grad        gate up dy                            -> dgate dup
//                      or gate_up dy                         -> dgate_up
//   add                a b                                   -> a + b
//   scale              x                                     -> factor * x           factor
//   dropout            x[T,n] scalars                        -> y                    rate, key, first_token; identity
//                                                            outside training
//   copy               x                                     -> y
//   swap_blocks        x[outer,inner,n]                      -> y[inner,outer,n]     outer, inner; n: what is left
//   select_row         x[T,d] index[1]                       -> y[1,d]
//   head_loss          h[T,d] W[V,d] targets[T] weights[T]   -> loss[2] workspace
//   head_loss_grad     h W targets weights scalars           -> loss[2] dh[T,d] workspace (dW[V,d] [accumulate])
// Of a vocabulary split over an axis, of which W has V words from first_word on; tokens [begin, begin + rows):
//   head_logits        h[T,d] W[V,d] targets[T]              -> logits[rows,stride] sums fp64[rows,3] workspace
//   head_split_loss    sums[n rows,3] targets weights (loss) -> loss[2] [accumulate] nll fp64[rows]
//   head_logits_grad   logits sums[n rows,3] h W targets weights scalars (dh)  -> dh[T,d] workspace logits, which are no
//                                                            longer, (dW[V,d] [accumulate])
// Nodes that become others (attribute axes: bits of an AxisSet): head_loss_split, with the operands of head_loss;
// copy_to_axis, reduce_from_axis, gather_from_axis, scatter_to_axis, tokens_to_columns, columns_to_tokens x -> y.
// clang-format on

#include <string_view>
#include <vector>

#include "model/graph.hpp"
#include "program/ir/program.hpp"

namespace ztrain::program {

class Tape;
struct PartOfNode;

/// Tensors of a node's inputs and outputs, and the action that its ops belong to.
struct Operands {
  std::vector<TensorId> inputs, outputs;
  Action action;
};

struct OpType {
  std::string_view name;
  /// Emits the backward ops of a node. Null: no gradient flows through it.
  void (*adjoint)(Tape&, const model::Node&) = nullptr;
  double (*flops)(const Program&, const Op&) = nullptr;
  /// Bytes of workspace, a last output that complete() adds where it is not 0; null: none, or the adjoint
  /// rule added it.
  std::int64_t (*workspace)(const Program&, const Op&) = nullptr;
  /// In training its forward and gradient are one op, emitted by its adjoint rule.
  bool forward_with_gradient = false;
  /// Of ops of a backward: gradients of parameters alone come of it (program/schedules/halves.hpp).
  bool for_weights = false;
  /// Output 0 may take the place of input 0 (and of input 1 where `overlay` is 2) when nothing else reads
  /// that later.
  int overlay = 0;
  /// Outside training its output is its input 0.
  bool training_only = false;
  /// Output 0 is input 0 in another form: what reads it gives its gradient to input 0 (Tape::source).
  bool straight_through = false;
  /// Of ops of a model: the ways in which they work without communication (program/ir/placement.hpp).
  std::string_view placings{};
  /// Tells the node what part of its operands the rank has; null: none of its attributes speak of them.
  void (*fit)(model::Node&, const PartOfNode&) = nullptr;
  /// Emits the forward of a node whose op is several ops, or communicates. Null: it is one op of its name.
  void (*forward)(Program&, const Operands&, const model::Node&) = nullptr;
  /// Forward does nothing: its output is its input 0.
  bool alias = false;
  /// The op that does the same without output 2: what it becomes where nothing reads that (drop_dead_ops).
  std::string_view without_third{};
};

/// Throws Error naming the op when it has no row.
const OpType& op_type(std::string_view name);

/// Fills Op::flops, and adds the workspace output that the row asks for.
void complete(Program& program, Op& op);

/// The axes in an op's or node's attribute `axes` (bits of an AxisSet).
AxisSet axes_of(const Attributes& attributes);
Attributes axes_attribute(AxisSet axes);

}  // namespace ztrain::program
