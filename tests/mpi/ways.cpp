// Proves the ways of the op table by numbers, except those in `unproven`. The test cuts the operands
// unevenly as a way says, runs the op on each part, joins the outputs and compares them with the outputs of
// the whole operands. Values are fp64, bf16 or codes of 8 bits. Other tests compare each kernel with its
// reference.

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <set>

#include "base/shape.hpp"
#include "engine/executor.hpp"
#include "kernels/communication/record.hpp"
#include "kernels/dequantize/record.hpp"
#include "kernels/dispatch/record.hpp"
#include "kernels/distillation/record.hpp"
#include "program/ops/op_type.hpp"
#include "program/passes/final_passes.hpp"
#include "runtime/device/device.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/way_cases.hpp"

namespace ztrain::ways_test {
namespace {

using program::Op;
using program::OpType;
using program::Placement;
using program::Program;
using program::TensorId;
using program::Way;
using test::Fill;
using test::Operand;
using test::session;
using test::Twelfths;
using test::WayCase;

using Values = std::vector<double>;

/// f(a value of the type).
template <class F>
void with_element(DType type, const F& f) {
  if (type == DType::i32) return f(std::int32_t{});
  if (type == DType::u8) return f(std::uint8_t{});
  if (type == DType::f8e4m3) return f(f8e4m3{});
  if (type == DType::f32) return f(float{});
  if (type == DType::bf16) return f(bf16{});
  f(double{});
}

Values filled(const Operand& operand, std::mt19937& random) {
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::uniform_int_distribution<int> word(0, 11), small(-3, 3);
  Values values(at(elements(operand.shape)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    double v = uniform(random);
    if (operand.fill == Fill::positive) v = 1.5 + v;
    if (operand.fill == Fill::words) v = word(random);
    if (operand.fill == Fill::small) v = small(random);
    // Of 12 tokens: no document goes on behind a place where they are cut.
    if (operand.fill == Fill::documents) v = std::array{0, 1, 1, 1, 4, 4, 4, 4, 8, 9, 9, 9}[i];
    if (operand.fill == Fill::slots) v = static_cast<double>(i ^ 1);
    if (operand.fill == Fill::offsets) v = std::array{0, 5, 5, 12}[i];
    with_element(operand.dtype, [&]<class T>(T) {
      using Narrow = std::conditional_t<sizeof(T) < 4 && !std::is_integral_v<T>, float, double>;
      values[i] = static_cast<double>(static_cast<T>(static_cast<Narrow>(v)));
    });
  }
  return values;
}

void write(const Operand& operand, const Values& values, std::byte* to) {
  if (operand.fill == Fill::scalars) {
    StepScalars scalars;
    scalars.optimizer_step = 3;
    scalars.loss_scale = 2;
    std::memcpy(to, &scalars, sizeof scalars);
    return;
  }
  with_element(operand.dtype, [&]<class T>(T) {
    using Narrow = std::conditional_t<sizeof(T) < 4 && !std::is_integral_v<T>, float, double>;
    for (std::size_t i = 0; i < values.size(); ++i)
      reinterpret_cast<T*>(to)[i] = static_cast<T>(static_cast<Narrow>(values[i]));
  });
}

Values read(const Operand& operand, const std::byte* from) {
  Values values;
  if (operand.fill == Fill::workspace) return values;
  with_element(operand.dtype, [&]<class T>(T) {
    for (std::int64_t i = 0; i < elements(operand.shape); ++i)
      values.push_back(static_cast<double>(reinterpret_cast<const T*>(from)[i]));
  });
  return values;
}

/// A Program of the one op.
Program program_of(const WayCase& c) {
  Program p;
  p.name = "one op";
  Op op;
  op.type = c.op;
  op.name = "it";
  op.attributes = c.attributes;
  const auto add = [&](const Operand& o) {
    return p.add({.name = "operand", .dtype = o.dtype, .shape = o.shape, .persistent = true});
  };
  for (const Operand& o : c.in) op.inputs.push_back(add(o));
  for (const Operand& o : c.out) op.outputs.push_back(o.same_as >= 0 ? op.inputs[at(o.same_as)] : add(o));
  program::complete(p, op);
  p.ops.push_back(std::move(op));
  link_dependencies(p);
  plan_lifetimes(p);
  plan_memory(p);
  return p;
}

class Ways : public testing::Test {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }

  std::vector<Values> run(const WayCase& c, const std::vector<Values>& inputs) {
    const Program p = program_of(c);
    const auto device = runtime::make_host_device();
    const engine::JobMemory memory({&p}, memory::Arena::Guards::off, device->memory(), device->staging());
    engine::Queues queues(*device);
    runtime::Mesh mesh(session(), MeshShape{});
    const Op& op = p.ops[0];
    for (std::size_t i = 0; i < c.in.size(); ++i) write(c.in[i], inputs[i], memory.address(p, op.inputs[i]));
    engine::Executor(p, memory, mesh, queues).run();
    std::vector<Values> outputs;
    for (std::size_t i = 0; i < c.out.size(); ++i)
      outputs.push_back(read(c.out[i], memory.address(p, op.outputs[i])));
    return outputs;
  }

  std::mt19937 random_{5};
};

Shape cut_shape(Shape shape, const Placement& p, const Twelfths& part) {
  if (p.kind == Placement::Kind::split) shape[at(p.dim)] = part.of(shape[at(p.dim)]);
  return shape;
}

/// f(index in the part, index in the whole) of each element of a part.
template <class F>
void each_of_part(const Shape& whole, const Placement& p, const Twelfths& part, const F& f) {
  const std::size_t cut = p.kind == Placement::Kind::split ? at(p.dim) : 0;
  const auto size = [&](std::size_t from, std::size_t to) {
    return elements(Shape(whole.begin() + static_cast<std::int64_t>(from),
                          whole.begin() + static_cast<std::int64_t>(to)));
  };
  const std::int64_t inner = size(cut + 1, whole.size());
  const std::int64_t own = cut_shape(whole, p, part)[cut] * inner, all = whole[cut] * inner;
  const std::int64_t first = p.kind == Placement::Kind::split ? part.begin * whole[cut] / 12 * inner : 0;
  for (std::int64_t i = 0; i < size(0, cut); ++i)
    for (std::int64_t j = 0; j < own; ++j) f(at(i * own + j), at(i * all + first + j));
}

/// A case, and one of its op's ways.
class Proof {
 public:
  Proof(const WayCase& whole, const Way& way, AxisSet axes, std::vector<Twelfths> parts)
      : whole_(whole), way_(way), axes_(axes), parts_(std::move(parts)) {
    const Program p = program_of(whole);
    const program::OperandGroups groups = program::groups_of(p.ops[0]);
    for (const TensorId t : p.ops[0].inputs)
      for (std::size_t g = 0; g < groups.size(); ++g)
        if (std::ranges::find(groups[g], t) != groups[g].end()) placed_.push_back(way.inputs[g]);
  }

  Placement out(std::size_t i) const {
    if (whole_.out[i].fill == Fill::workspace) return program::nothing;
    return way_.outputs.size() == 1  ? way_.outputs[0]
           : i < way_.outputs.size() ? way_.outputs[i]
                                     : program::nothing;
  }
  std::size_t parts() const { return parts_.size(); }
  /// Whether what is cut has twelfths.
  bool divides() const {
    for (std::size_t i = 0; i < placed_.size(); ++i)
      if (placed_[i].kind == Placement::Kind::split && whole_.in[i].shape[at(placed_[i].dim)] % 12 != 0)
        return false;
    return true;
  }

  WayCase part(std::size_t r) const {
    WayCase c = whole_;
    for (std::size_t i = 0; i < c.in.size(); ++i)
      c.in[i].shape = cut_shape(c.in[i].shape, placed_[i], parts_[r]);
    for (std::size_t i = 0; i < c.out.size(); ++i)
      c.out[i].shape = c.out[i].same_as >= 0 ? c.in[at(c.out[i].same_as)].shape
                                             : cut_shape(c.out[i].shape, out(i), parts_[r]);
    if (c.fit)
      c.fit(c.attributes, way_, parts_[r]);
    else
      fit_node(c, r);
    return c;
  }

  /// each_of_part of an operand.
  template <class F>
  void each_of(const Operand& o, const Placement& placed, std::size_t r, const F& f) const {
    const bool some_heads = o.by_head && way_.inputs[0] == program::by_columns;
    if (some_heads) return each_of_part({o.shape[0] / 12, 12}, program::by_columns, parts_[r], f);
    if (o.joined > 1 && placed == program::by_columns)
      return each_of_part({o.shape[0] * o.joined, o.shape[1] / o.joined}, placed, parts_[r], f);
    each_of_part(o.shape, placed, parts_[r], f);
  }

  /// Of each part, the operands.
  std::vector<std::vector<Values>> cut(const std::vector<Values>& inputs, std::mt19937& random) const {
    std::vector<std::vector<Values>> all(parts());
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Values rest = inputs[i];
      for (std::size_t r = 0; r < parts(); ++r) {
        Values own(at(elements(cut_shape(whole_.in[i].shape, placed_[i], parts_[r]))));
        each_of(whole_.in[i], placed_[i], r, [&](std::size_t mine, std::size_t of_all) {
          own[mine] = inputs[i][of_all];
          if (placed_[i] == program::partial) {
            own[mine] = r + 1 < parts() ? uniform(random) : rest[of_all];
            rest[of_all] -= own[mine];
          }
          // A rank that has some of the tokens has slots among their rows.
          if (whole_.in[i].fill == Fill::slots && placed_[i] == program::by_rows)
            own[mine] -= static_cast<double>(parts_[r].begin * elements(whole_.in[i].shape) / 12);
          // Of tokens that are dealt, documents begin in the rank's own.
          if (whole_.in[i].fill == Fill::documents && way_.when.over == sequence_axes)
            own[mine] -= static_cast<double>(parts_[r].begin);
        });
        all[r].push_back(std::move(own));
      }
    }
    return all;
  }

  void expect_joined(std::size_t output, const Values& whole, const std::vector<Values>& of_parts) const {
    const Placement placed = out(output);
    if (placed == program::nothing) return;
    Values joined(whole.size(), 0.0);
    double largest = 0, furthest = 0;
    for (std::size_t r = 0; r < parts(); ++r)
      each_of(whole_.out[output], placed, r, [&](std::size_t mine, std::size_t of_all) {
        joined[of_all] = of_parts[r][mine] + (placed == program::partial ? joined[of_all] : 0);
        if (placed.same()) furthest = std::max(furthest, distance(output, joined[of_all], whole[of_all]));
      });
    for (std::size_t i = 0; i < whole.size(); ++i) {
      furthest = std::max(furthest, distance(output, joined[i], whole[i]));
      largest = std::max(largest, std::abs(whole[i]));
    }
    EXPECT_LE(furthest, 1) << "output " << output << " is so many times as far from the whole's as rounding";
    EXPECT_GT(largest, 0) << "output " << output << " shows nothing";
  }

 private:
  /// In what rounding may come to.
  double distance(std::size_t output, double value, double wanted) const {
    const double rounding = size_of(whole_.out[output].dtype) == 8 ? 1e-9 : 1e-3;  // of thousands that cancel
    return std::abs(value - wanted) / (rounding * (1 + std::abs(wanted)));
  }

  /// As the pass that places does.
  void fit_node(WayCase& c, std::size_t r) const {
    const auto fit = program::op_type(c.op).fit;
    if (!fit) return;
    program::PartOfNode part{{}, out(0), axes_, static_cast<int>(r)};
    model::Node node;
    node.op = c.op;
    node.attributes = c.attributes;
    for (std::size_t i = 0; i < c.in.size(); ++i) {
      node.inputs.push_back(static_cast<model::ValueId>(i));
      part.inputs.push_back({placed_[i], c.in[i].shape, whole_.in[i].shape, {}});
      if (placed_[i].kind != Placement::Kind::split) continue;
      const std::int64_t size = whole_.in[i].shape[at(placed_[i].dim)];
      for (const Twelfths& t : parts_)
        part.inputs.back().parts.push_back({t.begin * size / 12, t.end * size / 12});
    }
    fit(node, part);
    c.attributes = node.attributes;
  }

  const WayCase& whole_;
  const Way& way_;
  AxisSet axes_;
  std::vector<Twelfths> parts_;
  std::vector<Placement> placed_;  ///< by input
};

std::vector<WayCase> all_cases() {
  using namespace test::way_cases;
  std::vector<WayCase> all;
  for (auto cases : {of_rows(), of_products(), of_groups(), of_elements(), of_attention(), of_heads(),
                     of_teachers(), of_codes(), of_experts()})
    all.insert(all.end(), cases.begin(), cases.end());
  return all;
}

/// What cannot be joined: by op and number of its way.
const std::map<std::pair<std::string_view, std::size_t>, const char*> unproven{
    {{LinearQuantized::op, 0}, "it becomes other ops"},
    {{LinearQuantized::op, 1}, "it becomes other ops"},
    {{LinearQuantized::op, 2}, "it becomes other ops"},
    {{LinearQuantized::op, 3}, "it becomes other ops"},
    {{LinearQuantized::op, 4}, "it becomes other ops"},
    {{program::Dequantize::op, 0}, "parts have codes of their own: mpi/quantized"},
    {{program::Dequantize::op, 1}, "parts have codes of their own: mpi/quantized"},
    {{program::SwapBlocks::op, 0}, "half of an exchange: mpi/axes_pairs"},
    {{program::SwapBlocks::op, 1}, "half of an exchange: mpi/axes_pairs"},
    {{program::Fp8Magnitudes::op, 0}, "ranks' largest lie behind one another: mpi/fp8_parts"},
    {{program::Fp8Magnitudes::op, 1}, "ranks' largest lie behind one another: mpi/fp8_parts"},
    {{Fp8Quantize::op, 1}, "dealt tokens have scales of their own"},
    {{Fp8QuantizeBoth::op, 0}, "dealt tokens have scales of their own"},
    {{program::LinearFp8GradWeight::op, 0}, "dealt tokens have scales of their own"},
    {{GroupedLinear::op, 0}, "parts of rows have offsets of their own: unit/kernels_grouped"},
    {{GroupedLinearGradInput::op, 0}, "parts of rows have offsets of their own: unit/kernels_grouped"},
    {{GroupedLinearGradWeight::op, 0}, "parts of rows have offsets of their own: unit/kernels_grouped"},
    {{GroupedLinearGradBias::op, 0}, "parts of rows have offsets of their own: unit/kernels_grouped"},
    {{HeadLoss::op, 1}, "it becomes another op"},
    {{HeadTokens::op, 1}, "it becomes another op"},
    {{program::TeacherSums::op, 1}, "its sums lie behind one another: unit/kernels_distillation"},
    {{program::LikeliestWords::op, 1}, "its words lie behind one another: unit/kernels_distillation"},
    {{SequenceSums::op, 1}, "ranks have sequences of their own"},
    {{SequenceSumsGrad::op, 1}, "ranks have sequences of their own"},
    {{KlSums::op, 0}, "ranks have sequences of their own"},
    {{PreferenceLoss::op, 0}, "ranks have pairs of their own"},
    {{PreferenceLossGrad::op, 0}, "ranks have pairs of their own"},
    {{SortByExpert::op, 0}, "each rank sorts rows of its own"},
    {{RouterSums::op, 1}, "ranks have micro-batches of their own"},
    {{RouterSumsGrad::op, 1}, "ranks have micro-batches of their own"},
    {{ShareSums::op, 0}, "it becomes another op"},
    {{OwnSums::op, 0}, "ranks have micro-batches of their own"},
    {{BalanceLoss::op, 0}, "ranks have micro-batches of their own"},
    {{BalanceLossGrad::op, 0}, "ranks have micro-batches of their own"},
    {{program::HeadLogits::op, 1}, "its sums lie behind one another: unit/kernels_head_split"},
    {{MakeRoutes::op, 0}, "each rank has routes of its own: unit/kernels_dispatch"},
    {{RowsToSlots::op, 0}, "each rank has routes of its own: unit/kernels_dispatch"},
    {{SlotsToRows::op, 0}, "each rank has routes of its own: unit/kernels_dispatch"},
    {{SlotsToExperts::op, 0}, "each rank has routes of its own: unit/kernels_dispatch"},
    {{ExpertsToSlots::op, 0}, "each rank has routes of its own: unit/kernels_dispatch"},
};

/// Rows that go to the experts of other ranks and back are proven together: mpi/experts.
bool goes_to_experts(const Way& way) {
  const auto is_way = [](const Placement& p) {
    return p == program::routed || p == program::to_members || p == program::from_members;
  };
  return std::ranges::any_of(way.inputs, is_way) || std::ranges::any_of(way.outputs, is_way);
}

TEST_F(Ways, OfEveryOpGiveWhatTheWholeGives) {
  std::set<std::pair<std::string_view, std::size_t>> proven;
  for (const WayCase& c : all_cases()) {
    const OpType& row = program::op_type(c.op);
    for (std::size_t w = 0; w < row.ways.size(); ++w) {
      const Way& way = row.ways[w];
      const AxisSet axis = way.when.over.contains(Axis::tensor)    ? Axis::tensor
                           : way.when.over.contains(Axis::context) ? Axis::context
                                                                   : Axis::replicate;
      const std::size_t groups = program::groups_of(program_of(c).ops[0]).size();
      if (groups > way.inputs.size() || !way.allows(c.attributes, axis)) continue;
      if (unproven.contains({row.record.name, w}) || goes_to_experts(way)) continue;
      for (const std::vector<Twelfths>& parts :
           {std::vector<Twelfths>{{0, 1}, {1, 9}, {9, 12}}, {{0, 4}, {4, 8}, {8, 12}}, {{0, 9}, {9, 12}}}) {
        SCOPED_TRACE(testing::Message()
                     << c.op << ", way " << w << ", " << parts.size() << " parts from " << parts[0].end);
        const Proof proof(c, way, axis, parts);
        if (!proof.divides()) continue;
        if (way.when.says && !way.when.says(proof.part(0).attributes)) continue;
        std::vector<Values> inputs;
        for (const Operand& o : c.in) inputs.push_back(filled(o, random_));
        const std::vector<Values> whole = run(c, inputs);
        const auto cut = proof.cut(inputs, random_);
        std::vector<std::vector<Values>> outputs(c.out.size());
        for (std::size_t r = 0; r < parts.size(); ++r) {
          const std::vector<Values> own = run(proof.part(r), cut[r]);
          for (std::size_t i = 0; i < own.size(); ++i) outputs[i].push_back(own[i]);
        }
        for (std::size_t i = 0; i < whole.size(); ++i) proof.expect_joined(i, whole[i], outputs[i]);
        proven.insert({row.record.name, w});
      }
    }
  }
  for (const auto& kind : program::op_table())
    for (const OpType& row : kind) {
      const bool becomes_others = (row.forward && !row.straight_through && !row.emits_itself) || row.alias;
      for (std::size_t w = 0; w < (becomes_others ? 0 : row.ways.size()); ++w)
        EXPECT_NE(proven.contains({row.record.name, w}),
                  unproven.contains({row.record.name, w}) || goes_to_experts(row.ways[w]))
            << row.record.name << ", way " << w;
    }
}

}  // namespace
}  // namespace ztrain::ways_test
