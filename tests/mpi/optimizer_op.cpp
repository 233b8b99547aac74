// The optimizer's op, bound by hand: operands and attributes reach the kernel, and contradictions are named.

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "engine/kernel_table.hpp"
#include "kernels/launch/exec.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/optimizer_job.hpp"

namespace ztrain::optimizer_op_test {
namespace {

using namespace test;

constexpr std::int64_t count = 1280;
constexpr std::uint64_t names[2] = {0xfedcba9876543210u, 77};

/// Two parameters in two groups, the second cut by columns.
std::vector<kernels::OptimizerPiece> some_pieces() {
  return {{0, 300, 0.5, 0.1, names[0], 256}, {512, 700, 2, 0, names[1], 0, 7, 14, 7}};
}

/// A Program of one op on persistent tensors that hold the arrays of a case.
class OneOp {
 public:
  explicit OneOp(const OptimizerCase& c) : case_(c) {
    const program::TensorId gradient = add("gradient", c.types.gradient, count);
    const program::TensorId scalars = add("scalars", DType::u8, sizeof(StepScalars));
    op_.type = "optimizer_step";
    op_.outputs.push_back(add("parameter", c.types.parameter, count));
    if (c.master()) op_.outputs.push_back(add("master", c.types.master, count));
    for (std::size_t s = 0; s < c.states().size(); ++s)
      op_.outputs.push_back(add(c.states()[s].name, c.state_type(s), ceil_div(count, c.states()[s].granule)));
    op_.inputs = {gradient, scalars};
    op_.inputs.insert(op_.inputs.end(), op_.outputs.begin(), op_.outputs.end());
    std::vector<std::int64_t> pieces;
    for (const auto& p : some_pieces())
      pieces.insert(pieces.end(),
                    {p.begin, p.count, p.weight_decay > 0 ? 1 : 0, static_cast<std::int64_t>(p.stream),
                     p.slice_begin, p.run, p.stride, p.offset});
    op_.attributes = {{"rule", c.rule},
                      {"master", std::int64_t{c.master()}},
                      {"beta1", c.settings.beta1},
                      {"beta2", c.settings.beta2},
                      {"eps", c.settings.eps},
                      {"momentum", c.settings.momentum},
                      {"nesterov", std::int64_t{c.settings.nesterov}},
                      {"freeze_step", c.settings.freeze_step},
                      {"stochastic", std::int64_t{c.stochastic}},
                      {"seed", std::int64_t{3}},
                      {"pieces", pieces},
                      {"lr_scales", std::vector<double>{2, 0.5}},
                      {"weight_decays", std::vector<double>{0, 0.1}}};
  }

  program::Op& op() { return op_; }
  program::Tensor& tensor(program::TensorId id) { return program_.tensor(id); }

  /// The arrays after one launch.
  OptimizerArraysOf run(const OptimizerArraysOf& start, const StepScalars& scalars) {
    const auto device = runtime::make_device(session().local_rank());
    const engine::JobMemory memory({&program_}, memory::Arena::Guards::off, device->memory());
    runtime::Mesh mesh(session(), MeshShape{});
    const kernels::ExecHandle exec = kernels::make_exec(device->native_stream(runtime::compute_queue));
    engine::Bound bound = engine::bind({program_, op_, memory, mesh, *device, *exec});
    OptimizerArraysOf arrays = start;
    std::vector<Bytes*> bytes{&arrays.gradient, &arrays.parameter};
    std::vector<program::TensorId> ids{op_.inputs[0], op_.outputs[0]};
    if (case_.master()) bytes.push_back(&arrays.master);
    for (Bytes& state : arrays.states) bytes.push_back(&state);
    ids.insert(ids.end(), op_.outputs.begin() + 1, op_.outputs.end());
    for (std::size_t i = 0; i < ids.size(); ++i)
      memory.provider().write(memory.address(program_, ids[i]), bytes[i]->data(), std::ssize(*bytes[i]));
    memory.provider().write(memory.address(program_, op_.inputs[1]), &scalars, sizeof(scalars));
    bound.launch();
    device->finish();
    for (std::size_t i = 0; i < ids.size(); ++i)
      memory.provider().read(bytes[i]->data(), memory.address(program_, ids[i]), std::ssize(*bytes[i]));
    return arrays;
  }

 private:
  program::TensorId add(const std::string& name, DType dtype, std::int64_t items) {
    std::int64_t& extent = program_.plan[static_cast<int>(program::Tier::device)].persistent_bytes;
    program::Tensor t;
    t.name = name;
    t.dtype = dtype;
    t.shape = {items};
    t.persistent = true;
    t.address = extent;
    extent += round_up(t.bytes(), 256);
    return program_.add(std::move(t));
  }

  OptimizerCase case_;
  program::Program program_;
  program::Op op_;
};

class OptimizerOp : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { kernels::initialize_backend(); }
};

TEST_F(OptimizerOp, RunsItsKernel) {
  const auto device = runtime::make_device(session().local_rank());
  const kernels::ExecHandle exec = kernels::make_exec(device->native_stream(runtime::compute_queue));
  for (const OptimizerCase& c : optimizer_cases()) {
    const StepScalars scalars = scalars_of(c.settings, 1);
    Shared<StepScalars> shared(scalars);
    auto start = OptimizerArraysOf::start(c, 0, count);
    start.draw_gradients(c, 0, 0);
    auto expected = start;
    const auto step = make_step(c, expected, some_pieces());
    step->run(*exec, shared.get());
    device->finish();
    EXPECT_FALSE(expected == start);
    EXPECT_TRUE(OneOp(c).run(start, scalars) == expected) << c;
  }
}

template <class Change>
std::string refusal(Change change) {
  const OptimizerCase c{"adamw", {}, {DType::bf16, DType::f32, DType::f32, DType::f32}};
  OneOp one(c);
  change(one);
  try {
    one.run(OptimizerArraysOf::start(c, 0, count), {});
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST_F(OptimizerOp, RefusesOperandsThatAreNotTheRules) {
  const auto contains = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in '" << text << "'";
  };
  EXPECT_EQ(refusal([](OneOp&) {}), "");
  contains(refusal([](OneOp& o) { o.op().outputs.pop_back(); }), "3 outputs, not 4");
  contains(refusal([](OneOp& o) { o.tensor(o.op().outputs[3]).dtype = DType::bf16; }), "exp_avg_sq is bf16");
  contains(refusal([](OneOp& o) { o.tensor(o.op().outputs[3]).shape = {1279}; }), "1279 items");
  contains(refusal([](OneOp& o) { o.op().attributes.set("lr_scales", std::vector<double>{1}); }),
           "1 lr_scales");
  contains(refusal([](OneOp& o) { o.op().attributes.set("lr_scales", 1.0); }), "not a list of numbers");
  contains(refusal([](OneOp& o) {
             o.op().attributes.set("pieces", std::vector<std::int64_t>{1, 2});
           }),
           "2 integers");
}

}  // namespace
}  // namespace ztrain::optimizer_op_test
