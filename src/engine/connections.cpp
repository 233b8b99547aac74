#include "engine/connections.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <tuple>

#include "engine/groups.hpp"

namespace ztrain::engine {
namespace {

using program::CommKind;

/// NCCL chooses by size how a collective goes; behind this it chooses nothing else.
constexpr std::int64_t largest_message = std::int64_t{64} << 20;

/// One of the messages that stand for all of their kind. Ranks go through them in this order, which all
/// share.
struct Kind {
  GroupKey group;
  CommKind kind;
  DType dtype;
  int peer;      ///< the root of a broadcast, the distance of a shift
  bool uneven;   ///< slices of the ranks differ
  int exponent;  ///< of 4, which gives bytes that are no fewer
  auto operator<=>(const Kind&) const = default;

  std::int64_t bytes() const { return std::min(largest_message, std::int64_t{1} << (2 * exponent)); }
};

Kind kind_of(const program::Program& p, const program::Op& op) {
  const program::Tensor& sent = p.tensor(op.inputs.empty() ? op.outputs.front() : op.inputs.front());
  const int ranks = p.mesh.size(op.comm.axes);
  const std::int64_t bytes = sent.bytes() * (op.comm.kind == CommKind::all_gather ? ranks : 1);
  const int bits =
      std::bit_width(static_cast<std::uint64_t>(std::clamp<std::int64_t>(bytes, 2, largest_message) - 1));
  const bool pair = op.comm.kind == CommKind::send || op.comm.kind == CommKind::recv;
  return {key_of(p, op),
          pair ? CommKind::send : op.comm.kind,
          sent.dtype,
          pair ? 0 : op.comm.peer,
          op.comm.kind == CommKind::all_reduce && elements(sent.shape) % ranks != 0,
          (bits + 1) / 2};
}

/// Memory of the device for as long as it lives.
class Scratch {
 public:
  /// bytes: that each part has at least.
  Scratch(memory::Provider& memory, std::int64_t bytes)
      : memory_(memory),
        part_(round_up(bytes, alignment)),
        data_(memory.allocate("memory of first messages", parts * part_)) {}
  ~Scratch() { memory_.release(data_, parts * part_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// Returns where one of three equal parts begins, aligned as tensors are.
  std::byte* part(int number) const { return data_ + number * part_; }

 private:
  static constexpr std::int64_t parts = 3, alignment = 256;
  memory::Provider& memory_;
  std::int64_t part_;
  std::byte* data_;
};

std::unique_ptr<runtime::Collective> message(runtime::Communicator& comm, const Kind& kind,
                                             const Scratch& scratch) {
  const std::int64_t each = std::max<std::int64_t>(1, kind.bytes() / comm.size() / size_of(kind.dtype)),
                     count = each * comm.size() + (kind.uneven ? 1 : 0), slot = each * size_of(kind.dtype);
  std::byte *const from = scratch.part(0), *const to = scratch.part(1), *const workspace = scratch.part(2);
  switch (kind.kind) {
    case CommKind::all_gather:
      return comm.all_gather(from, to, slot);
    case CommKind::reduce_scatter:
      return comm.reduce_scatter(from, kind.dtype, to, kind.dtype, each, false, workspace);
    case CommKind::all_reduce:
      return comm.all_reduce(from, to, kind.dtype, count, workspace);
    case CommKind::broadcast:
      return comm.broadcast(from, kind.bytes(), kind.peer);
    case CommKind::all_to_all:
    case CommKind::all_to_all_rows:  // which exchanges whole slots on a device
      return comm.all_to_all(from, to, slot);
    case CommKind::shift:
      return comm.shift(from, to, kind.bytes(), kind.peer);
    default:  // of a pair, whose first rank sends to its second
      return comm.rank() == 0 ? comm.send(from, kind.bytes(), 1) : comm.recv(to, kind.bytes(), 0);
  }
}

}  // namespace

runtime::Mesh& with_connections(const runtime::Session& session, runtime::Mesh& mesh,
                                memory::Provider& memory,
                                const std::vector<const program::Program*>& programs) {
  with_groups(mesh, programs);
  if (!mesh.connects_late()) return mesh;
  std::map<Kind, const program::Op*> kinds;
  for (const program::Program* p : programs)
    for (const program::Op& op : p->ops)
      if (op.communicates() && p->mesh.size(op.comm.axes) > 1) kinds.try_emplace(kind_of(*p, op), &op);
  std::int64_t most = 0;
  for (const auto& [kind, op] : kinds) most = std::max(most, kind.bytes());
  most += most / 3;  // workspaces of two-step sums are at most a third larger
  most += 2 * static_cast<std::int64_t>(sizeof(double)) *
          mesh.shape().ranks();  // a rank's slice has an element at least
  const auto scratch = session.agree("connecting", [&] { return std::make_unique<Scratch>(memory, most); });
  for (const auto& [kind, op] : kinds) {
    const auto collective = message(communicator_of(mesh, *op), kind, *scratch);
    collective->start();
    collective->wait();
  }
  return mesh;
}

}  // namespace ztrain::engine
