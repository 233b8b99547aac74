#pragma once
// The step as a program: a list of typed ops on named tensors, compiled ahead for one rank. The order of the
// list is the order in which the host issues the ops. Everything that runs, plans, simulates, verifies or
// draws walks this.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/attributes.hpp"
#include "base/dtype.hpp"
#include "base/shape.hpp"
#include "kernel_interface/target.hpp"
#include "layout/layout.hpp"
#include "layout/mesh.hpp"
#include "layout/token_order.hpp"

namespace ztrain::program {

using TensorId = std::int32_t;
using OpId = std::int32_t;  ///< index into Program::ops
inline constexpr TensorId no_tensor = -1;

/// Ops of one stream run in issue order. Ops of different streams are ordered only by Op::after.
/// gather and reduce: of parameters and gradients, beside what computes. exchange: between ops that compute,
/// of one part of a layer; a gather that was issued early does not hold it up. p2p: messages among members.
/// to_device and to_host: copies, of which those of one direction do not hold up those of the other. io: to
/// and from NVMe. host: what the host's processor computes beside the device's. The last four: messages to
/// and from the next rank of the ring of pipeline ranks, and the previous one, so that one that its receiver
/// is not ready for holds up none of another direction.
enum class Stream : std::uint8_t {
  compute,
  gather,
  reduce,
  exchange,
  p2p,
  to_device,
  to_host,
  io,
  host,
  to_next,
  to_previous,
  from_next,
  from_previous,
  // Messages between stages that go beside these.
  beside_to_next,
  beside_to_previous,
  beside_from_next,
  beside_from_previous
};
inline constexpr int stream_count = 17;
std::string_view name_of(Stream stream);

/// Where bytes live.
enum class Tier : std::uint8_t { device, host, nvme };
inline constexpr int tier_count = 3;
std::string_view name_of(Tier tier);

/// Groups ops for people, schedules, timings and traces.
enum class ActionKind : std::uint8_t {
  load,
  gather,
  release,
  forward,
  backward,
  recompute,
  reduce,
  send,
  recv,
  fetch,
  evict,
  norm,
  optimize
};
inline constexpr int action_kind_count = 13;
std::string_view name_of(ActionKind kind);
/// Forward, backward and recompute: what a model's blocks do.
bool is_compute(ActionKind kind);

/// Of a backward that a schedule takes in two turns: gradients of inputs, and of weights.
enum class Half : std::uint8_t { both, inputs, weights };

struct Action {
  ActionKind kind = ActionKind::forward;
  int part = -1;   ///< forward, backward, recompute: the block; otherwise the unit. -1: of none
  int micro = -1;  ///< -1: of no micro-batch
  Half half = Half::both;
  bool operator==(const Action&) const = default;
};

/// Rows of the memory table.
enum class Category : std::uint8_t {
  parameter,
  master,
  optimizer,
  gradient,
  gathered,
  activation,
  input,
  scalar,
  workspace,
  cache,
  snapshot
};
inline constexpr int category_count = 11;
std::string_view name_of(Category category);

struct Tensor {
  std::string name{};
  DType dtype = DType::f32;
  Shape shape{};
  Category category = Category::activation;
  Tier tier = Tier::device;
  /// Keeps its bytes between Programs, at the same address in each of them. Otherwise it lives from `first`
  /// to `last`.
  bool persistent = false;
  /// A view: bytes [offset, offset + bytes()) of tensor `base`, which is not itself a view. Views have no
  /// storage.
  TensorId base = no_tensor;
  std::int64_t offset = 0;
  /// Bytes by which a view that the body of Program::repeat names moves on from one iteration to the next.
  std::int64_t step = 0;
  /// The ring of Repeat::rings that it belongs to, and its index there. -1: every iteration names it alike.
  int ring = -1, ring_index = 0;
  /// Index into Program::units: it holds something for each element of the unit's flat range, or of a shard
  /// of it; -1: something else.
  int unit = -1;

  // Filled by plan_lifetimes and plan_memory, for tensors with storage.
  OpId first = -1;            ///< first op that accesses it or a view of it
  OpId last = -1;             ///< last op that does; its bytes may be reused after that
  std::int64_t address = -1;  ///< bytes from the start of its tier's persistent or transient region

  std::int64_t bytes() const { return elements(shape) * size_of(dtype); }
};

enum class CommKind : std::uint8_t {
  none,
  all_gather,
  reduce_scatter,
  all_reduce,
  broadcast,
  send,
  recv,
  all_to_all,
  all_to_all_rows,
  shift
};
std::string_view name_of(CommKind kind);

/// What a communication op does beyond its tensors. Every member of the group over `axes` issues a matching
/// op; send and recv match with the rank at index `peer` of that group, a broadcast comes from it. Of a shift
/// peer is the distance: member r sends to member r + peer of the ring, and receives from r - peer.
struct Communication {
  CommKind kind = CommKind::none;
  AxisSet axes;
  int peer = -1;
  /// Bytes that this rank sends; of all_to_all_rows the most that it may.
  std::int64_t sent_bytes = 0;
  bool operator==(const Communication&) const = default;
};

/// inputs are read, outputs written; a tensor updated in place is in both.
struct Op {
  std::string type{};  ///< row of the op table ("linear", "all_gather", ...)
  std::string name{};  ///< for messages: "model.layers.0.mlp.up_proj"
  std::vector<TensorId> inputs{}, outputs{};
  Attributes attributes{};
  /// Whose memory its operands are in. A copy may go between the device and the host, or the host and NVMe.
  Tier tier = Tier::device;
  Stream stream = Stream::compute;
  Action action{};
  Communication comm{};
  double flops = 0;
  /// Ops of other streams (all earlier in the list) that must be complete before this one starts. Filled by
  /// link_dependencies, and by plan_memory for the reuse of bytes.
  std::vector<OpId> after{};

  bool communicates() const { return comm.kind != CommKind::none; }
};

/// An attribute of an op that grows by so much from one time to the next.
struct AttributeStep {
  OpId op = -1;
  std::string key;
  std::int64_t by = 0;
  bool operator==(const AttributeStep&) const = default;
};

/// Tensors of which each iteration has the next: where an iteration names tensors[i], the one after it names
/// tensors[i + 1]. They have addresses in turn: tensors[i] has that of tensors[i % slots].
struct Ring {
  std::vector<TensorId> tensors{};
  int slots = 1;  ///< tensors that are alive at once; of inputs, which are kept, all
  TensorId slot_of(int index) const { return tensors[at(index) % at(slots)]; }
  bool operator==(const Ring&) const = default;
};

/// Ops [begin, end), the body, are issued `times` times in a row, on the same addresses but for Tensor::step
/// and rings. Each time is an iteration, for the micro-batches in the middle of a step
/// (program/loops/repeat.hpp says when that is right, and how Op::after is read). All that walks a Program in
/// issue order, or adds up what it does, counts the body so often.
struct Repeat {
  OpId begin = 0, end = 0;
  int times = 1;
  int stride = 1;  ///< micro-batches by which the body's ops move on from one iteration to the next
  int warm_up =
      0;  ///< iterations directly before the body that are identical to it; later ones end their work
  std::vector<AttributeStep> attributes{};
  std::vector<Ring> rings{};
  OpId length() const { return end - begin; }
  /// The first op of the iterations that are identical to the body.
  OpId warm_up_begin() const { return begin - warm_up * length(); }
  bool contains(OpId op) const { return begin <= op && op < end; }
  bool operator==(const Repeat&) const = default;
};

/// Where the values of a parameter that this rank computes with lie in its unit's flat range, in elements.
struct ParameterPlace {
  std::string name;
  int unit = 0;
  std::int64_t begin = 0, count = 0;
  int split = -1;           ///< the dim that is cut over split_over; -1: every rank has the parameter whole
  bool takes_rows = false;  ///< of a whole one: this rank computes with some of its rows alone
  bool trainable = false;   ///< it has a gradient
  int other_rank = -1;      ///< of the pipeline, that has the same; -1: none
  AxisSet split_over = Axis::tensor;
  int dims = 1;  ///< of its shape

  /// Whether ranks of the axis have parts of its matrices, which are its last two dims.
  bool cuts_matrices(Axis axis) const { return split >= dims - 2 && split_along(axis); }
  bool split_along(Axis axis) const { return split >= 0 && split_over.contains(axis); }
};

/// Extents of one tier's regions, from plan_memory.
struct TierPlan {
  std::int64_t persistent_bytes = 0;
  std::int64_t transient_bytes = 0;  ///< extent of the transient region
  std::int64_t live_bytes = 0;  ///< largest sum of transient bytes alive at once: no extent can be smaller
};

struct Program {
  std::string name;  ///< "train step", "evaluation", ...
  int rank = 0;      ///< global rank it was compiled for
  MeshShape mesh;
  TokenOrder token_order;           ///< in which the ranks of mesh.context have the tokens of its inputs
  std::int64_t tokens = 0;          ///< of a micro-batch, before padding; 0: there is none
  Target target = build_target();   ///< what its kernels and their workspaces are for
  std::vector<std::string> blocks;  ///< names: of forward, backward and recompute
  std::vector<std::string> units;   ///< names: of what is gathered, reduced and stepped
  std::vector<std::int64_t> unit_elements;  ///< by unit: of its flat range
  std::vector<UnitCut> unit_cuts;           ///< by unit
  std::vector<ParameterPlace> parameters;   ///< in the order of their units and places; of inference none
  std::vector<Tensor> tensors;
  std::vector<Op> ops;
  Repeat repeat;
  TierPlan plan[tier_count];

  Tensor& tensor(TensorId id) { return tensors[at(id)]; }
  const Tensor& tensor(TensorId id) const { return tensors[at(id)]; }
  Op& op(OpId id) { return ops[at(id)]; }
  const Op& op(OpId id) const { return ops[at(id)]; }

  /// How often an op is issued.
  int times(OpId id) const { return repeat.contains(id) ? repeat.times : 1; }
  /// Ops issued in one run.
  std::int64_t issues() const { return std::ssize(ops) + std::int64_t{repeat.times - 1} * repeat.length(); }

  /// The tensor that holds the bytes: the tensor itself, or the base of a view.
  TensorId storage(TensorId id) const { return tensor(id).base == no_tensor ? id : tensor(id).base; }
  /// Whether the tensors of the ring, or of this one's, take turns at several addresses of the transient
  /// region.
  bool rotates(const Ring& ring) const { return ring.slots > 1 && !tensor(ring.tensors.front()).persistent; }
  bool rotates(const Tensor& t) const { return t.ring >= 0 && rotates(repeat.rings[at(t.ring)]); }
  /// Bytes from the address of a tensor to where an op has it: an op of the body in this iteration, and an op
  /// behind the body after all iterations.
  std::int64_t moved_by(TensorId id, OpId op, int time) const;
  TensorId add(Tensor tensor);
  /// Bytes that one op works with.
  TensorId add_workspace(std::string called, std::int64_t bytes);
  /// Elements [begin, begin + count) of a tensor that is no view. All else is as the tensor has it, its unit
  /// and category too.
  TensorId add_view(std::string called, TensorId of, std::int64_t begin, std::int64_t count);
  /// The tensor of this name, or no_tensor. Linear in the number of tensors.
  TensorId find(std::string_view name) const;
};

/// Of products and attention, in one run.
double flops_of(const Program& program);

/// "forward model.layers.3 micro 0: linear model.layers.3.mlp.up_proj (op 41)"
std::string describe(const Program& program, OpId op);

}  // namespace ztrain::program
