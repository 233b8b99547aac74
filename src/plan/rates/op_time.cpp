#include "plan/rates/op_time.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "base/shape.hpp"
#include "kernel_interface/orthogonal.hpp"
#include "kernels/elementwise/record.hpp"
#include "kernels/orthogonal/record.hpp"
#include "program/ir/order.hpp"

namespace ztrain::plan {
namespace {

using program::Op;
using program::Program;
using program::Tier;

bool is_attention(const Op& op) {
  return op.type.starts_with("attention");
}

/// A kernel that computes the head's logits in parts, of which no tile is seen from outside.
bool is_head(const Op& op) {
  return op.type.starts_with("head_");
}

double of(const BytesByTier& bytes, Tier tier) {
  return bytes[static_cast<std::size_t>(tier)];
}

/// Kernels of forward and backward that a peer does not fuse.
double passes_of(const Op& op, const Machine& m) {
  return program::is_compute(op.action.kind) && op.flops == 0 ? m.rates.memory.passes : 1;
}

double share_of(const program::Tensor& t, const FilledRows& filled) {
  if (filled.empty() || t.shape.size() != 2) return 1;
  const auto found = filled.find(t.shape[0]);
  return found == filled.end() ? 1 : found->second;
}

/// The part of what all-to-all of rows may send that it is expected to send.
double sent_share(const Program& p, const Op& op, const FilledRows& filled) {
  double share = 1;
  if (op.comm.kind == program::CommKind::all_to_all_rows)
    for (const auto* ids : {&op.inputs, &op.outputs})
      for (const program::TensorId id : *ids) share = std::min(share, share_of(p.tensor(id), filled));
  return share;
}

double memory_seconds(const Op& op, const BytesByTier& bytes, const Machine& m) {
  const double host = of(bytes, Tier::device) > 0 ? m.host_bandwidth : m.host_memory_bandwidth;
  return std::max({of(bytes, Tier::device) * passes_of(op, m) / (m.memory_bandwidth * m.memory_efficiency),
                   of(bytes, Tier::host) / host, of(bytes, Tier::nvme) / m.nvme_bandwidth});
}

double attention_seconds(const Program& p, const Op& op, const Machine& m) {
  const AttentionRates& rates = m.rates.attention;
  const bool back = op.type.ends_with("_grad");
  const Shape& q = p.tensor(op.inputs[0]).shape;
  const double cells = static_cast<double>(elements(q)),
               span = op.flops / ((back ? 10 : 4) * std::max(1.0, cells));
  const double filled = 2 * span / (2 * span + rates.half_length);
  return op.flops / (m.peak_flops * (back ? rates.backward : rates.forward) * filled);
}

/// Seconds of so many FLOPs in products of this shape. A head's tiles do not count.
double seconds_of_products(double flops, const ProductShape& shape, DType in, bool head, const Machine& m) {
  const ProductRates& rates = m.rates.products;
  if (const auto points = m.rates.measured_products.find(in); points != m.rates.measured_products.end())
    return flops / measured_rate(points->second, shape);
  const double peak =
      m.peak_flops * (is_fp8(in) ? m.fp8_speedup * rates.fp8_efficiency : m.compute_efficiency);
  return flops / (peak * m.computing_share * (head ? 1 : tile_use(shape, rates)));
}

/// Seconds to orthogonalise matrices one after the other. Two of the three products of a step give squares of
/// a matrix's shorter side, and the third one gives the matrix.
double orthogonal_seconds(const std::vector<OrthogonalMatrix>& matrices, DType in, const Machine& m) {
  double seconds = 0;
  for (const OrthogonalMatrix& x : matrices) {
    const std::int64_t side = std::min(x.rows, x.cols), length = std::max(x.rows, x.cols);
    const auto d = static_cast<double>(side), n = static_cast<double>(length);
    const double squares = orthogonal_steps * 2 * d * d * (n + d), whole = orthogonal_steps * 2 * d * d * n;
    seconds += 3 * orthogonal_steps * m.rates.products.fixed +
               seconds_of_products(squares, {1, side, side, n}, in, false, m) +
               seconds_of_products(whole, {1, side, length, d}, in, false, m);
  }
  return seconds;
}

double product_seconds(const Program& p, const Op& op, const Machine& m) {
  const DType in = op.inputs.empty() ? DType::f32 : p.tensor(op.inputs[0]).dtype;
  if (op.type == Orthogonalise::op)
    return orthogonal_seconds(record_of<Orthogonalise>(op.attributes).matrices, in, m);
  const bool fixed = !m.rates.measured_products.contains(in);
  return (fixed ? m.rates.products.fixed : 0) +
         seconds_of_products(op.flops, product_shape(p, op), in, is_head(op), m);
}

double compute_seconds(const Program& p, const Op& op, const Machine& m) {
  if (op.flops == 0) return 0;
  return is_attention(op) ? attention_seconds(p, op, m) : product_seconds(p, op, m);
}

/// One after another: a tree over the members, or a shift's one message.
int exchanges_of(const Op& op, int members) {
  return op.comm.kind == program::CommKind::shift ? 1 : std::bit_width(static_cast<unsigned>(members - 1));
}

/// Hops of a collective over links that join so many members.
double latency_of(const Op& op, int members, const LinkRates& link) {
  using program::CommKind;
  if (members < 2) return 0;
  const double ring = (members - 1) * link.hop,
               tree = std::bit_width(static_cast<unsigned>(members - 1)) * link.tree_hop;
  switch (op.comm.kind) {
    case CommKind::shift:
      return link.start + link.hop;
    case CommKind::all_reduce:
      return link.start + (link.tree_hop > 0 ? std::min(2 * ring, 2 * tree) : 2 * ring);
    case CommKind::broadcast:
      return link.start + (link.tree_hop > 0 ? std::min(ring, tree) : ring);
    default:
      return link.start + ring;
  }
}

}  // namespace

FilledRows filled_rows(const Program& p) {
  FilledRows filled;
  for (const Op& op : p.ops) {
    const std::int64_t even = op.attributes.integer("even_rows", 0);
    const std::int64_t rows = even > 0 ? p.tensor(op.inputs[0]).shape[0] : 0;
    if (rows > even) filled[rows] = static_cast<double>(even) / static_cast<double>(rows);
  }
  return filled;
}

// A workspace is a reservation; padding is cleared piece by piece.
BytesByTier bytes_touched(const Program& p, const Op& op, const FilledRows& filled) {
  BytesByTier bytes{};
  if (op.type == program::Release::op) return bytes;
  if (program::is_settling(op)) return bytes;  // the step stands
  if (op.type == program::ZeroGaps::op) {
    const program::Tensor& t = p.tensor(op.outputs[0]);
    for (const program::Elements& gap : record_of<program::ZeroGaps>(op.attributes).gaps)
      bytes[static_cast<std::size_t>(t.tier)] += static_cast<double>(gap.count * size_of(t.dtype));
    return bytes;
  }
  for (const auto* ids : {&op.inputs, &op.outputs})
    for (const program::TensorId id : *ids) {
      const program::Tensor& t = p.tensor(id);
      if (t.category == program::Category::workspace) continue;
      bytes[static_cast<std::size_t>(p.tensor(p.storage(id)).tier)] +=
          share_of(t, filled) * static_cast<double>(t.bytes());
    }
  return bytes;
}

KernelWork kernel_work(const Program& p, const Op& op, const GroupPlace& place, const FilledRows& filled) {
  if (!op.communicates()) {
    const BytesByTier bytes = bytes_touched(p, op, filled);
    return {of(bytes, Tier::device) + of(bytes, Tier::host), op.flops, 0};
  }
  const bool one = is_message(op) || op.comm.kind == program::CommKind::shift;
  return {sent_share(p, op, filled) * static_cast<double>(op.comm.sent_bytes), 0,
          one ? 1.0 : static_cast<double>(place.members - 1)};
}

double message_seconds(const Program& p, const Op& op, const Machine& m) {
  const auto& ids = op.comm.kind == program::CommKind::send ? op.inputs : op.outputs;
  const double bytes = ids.empty() ? 0.0 : static_cast<double>(p.tensor(ids[0]).bytes());
  const bool here = stays_on_node(p, op, m.ranks_per_node);
  // The receiver does not say how much it gets as what it sends.
  if (const KernelRate* rate = here ? kernel_rate(m.rates, p, op) : nullptr)
    return rate->seconds({bytes, 0, 1});
  const LinkRates& link = here ? m.rates.node : m.rates.network;
  return bytes / (link.share * (here ? m.intra_node_bandwidth : m.inter_node_bandwidth)) + link.start +
         link.hop + m.latency;
}

LinkSeconds collective_seconds(const Program& p, const Op& op, const GroupPlace& place, const Machine& m,
                               const FilledRows& filled) {
  if (place.members < 2) return {};
  if (const KernelRate* rate = place.members == place.on_node ? kernel_rate(m.rates, p, op) : nullptr) {
    LinkSeconds measured;
    measured.node = rate->seconds(kernel_work(p, op, place, filled));
    return measured;
  }
  const double share = sent_share(p, op, filled);
  const int nodes = ceil_div(place.members, place.on_node);
  LinkSeconds seconds;
  if (place.on_node > 1)
    seconds.node =
        share * static_cast<double>(op.comm.sent_bytes) / (m.intra_node_bandwidth * m.rates.node.share);
  if (nodes > 1)
    seconds.network = share * bytes_out_of_node(p, op, place, m.ranks_per_node) /
                      (m.inter_node_bandwidth * m.rates.network.share);
  // A ring over all members takes the hops in its nodes and those between them.
  LinkRates inside = m.rates.node;
  if (nodes > 1) inside.start = 0;
  const int inside_members = nodes > 1 ? place.members - nodes + 1 : place.members;
  seconds.latency = m.latency * exchanges_of(op, place.members) + latency_of(op, inside_members, inside) +
                    latency_of(op, nodes, m.rates.network);
  return seconds;
}

double duration_of(const Program& p, const Op& op, const Machine& m, const FilledRows& filled) {
  if (is_message(op)) return message_seconds(p, op, m);
  if (op.communicates()) {
    const GroupPlace place = place_of(Coordinate(p.mesh, p.rank), op.comm.axes, m.ranks_per_node);
    return collective_seconds(p, op, place, m, filled).all();
  }
  const BytesByTier bytes = bytes_touched(p, op, filled);
  const bool released = op.type == program::Release::op, drives = of(bytes, Tier::nvme) > 0;
  if (const KernelRate* rate = released || drives ? nullptr : kernel_rate(m.rates, p, op))
    return rate->seconds(kernel_work(p, op, {}, filled));
  const double computing = compute_seconds(p, op, m), moving = memory_seconds(op, bytes, m);
  if (computing == 0 && moving == 0) return 0;
  return std::max(computing, moving + (op.flops == 0 ? m.rates.memory.fixed : 0));
}

}  // namespace ztrain::plan
