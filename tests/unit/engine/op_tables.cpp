// The tables that an op stands in agree: its record and rules, and its kernel.
#include <gtest/gtest.h>

#include <set>

#include "base/error.hpp"
#include "engine/kernel_table.hpp"
#include "kernels/attention/record.hpp"
#include "kernels/communication/record.hpp"
#include "kernels/dequantize/record.hpp"
#include "kernels/dispatch/record.hpp"
#include "kernels/dropout/record.hpp"
#include "kernels/elementwise/record.hpp"
#include "kernels/embedding/record.hpp"
#include "kernels/fp8/record.hpp"
#include "kernels/linear/record.hpp"
#include "kernels/load/record.hpp"
#include "kernels/norm/record.hpp"
#include "kernels/optimizer/record.hpp"
#include "kernels/orthogonal/record.hpp"
#include "kernels/preference/record.hpp"
#include "kernels/rope/record.hpp"
#include "kernels/signs/record.hpp"
#include "kernels/step/record.hpp"
#include "program/ops/op_type.hpp"

namespace ztrain::op_tables_test {
namespace {

using program::Op;
using program::OpType;

std::vector<const OpType*> all_ops() {
  std::vector<const OpType*> ops;
  for (const auto kind : program::op_table())
    for (const OpType& row : kind) ops.push_back(&row);
  return ops;
}

/// Nodes of these become other ops; those that quantise go on to be ops of their own name.
bool is_node_alone(const OpType& row) {
  return (row.forward != nullptr && !row.straight_through && !row.emits_itself) || row.alias;
}

TEST(OpTables, HaveOneRowForEachOpAndOneKernelForEachThatRuns) {
  std::set<std::string_view> ops, kernels;
  for (const OpType* row : all_ops()) {
    EXPECT_TRUE(ops.insert(row->record.name).second) << row->record.name << " has two rows";
    EXPECT_EQ(&program::op_type(row->record.name), row);
  }
  for (const auto kind : engine::kernel_table())
    for (const engine::KernelRow& row : kind) {
      EXPECT_TRUE(kernels.insert(row.op).second) << row.op << " has two kernels";
      EXPECT_TRUE(ops.contains(row.op)) << "a kernel for '" << row.op << "', which no op is";
    }
  EXPECT_GT(kernels.size(), 50U);
  for (const OpType* row : all_ops())
    EXPECT_NE(kernels.contains(row->record.name), is_node_alone(*row)) << row->record.name;
}

/// What the check of placements does not treat by itself says how it may be cut.
TEST(OpTables, TellOfEachOpThatComputesHowItMayBeCut) {
  using namespace program;
  const std::set<std::string_view> by_itself{
      AllGather::op,        ReduceScatter::op,  AllReduce::op,   AllToAll::op,     Shift::op,
      AllToAllRows::op,     CountOverflows::op, Broadcast::op,   Send::op,         Recv::op,
      Release::op,          ZeroGaps::op,       SumSquares::op,  StepPartials::op, FinishStep::op,
      OptimizerStep::op,    Fp8Largest::op,     Fp8Scales::op,   Fp8Encode::op,    OwnRows::op,
      EncodeBlocks::op,     DecodeBlocks::op,   SumCodes::op,    SumOfRanks::op,   ExpertsPartials::op,
      PreferenceReport::op, Orthogonalise::op,  EncodeSigns::op, SumSigns::op,     DecodeSigns::op};
  // Ranks have equal operands, or the check refuses it.
  const std::set<std::string_view> of_equals{MoveBiases::op};
  // Of Programs that the check does not look at: generation.
  const std::set<std::string_view> of_inference{CacheAppend::op, AttentionCached::op};
  for (const OpType* row : all_ops()) {
    const std::string_view name = row->record.name;
    if (is_node_alone(*row)) continue;
    EXPECT_EQ(row->ways.empty(),
              by_itself.contains(name) || of_equals.contains(name) || of_inference.contains(name))
        << name;
  }
}

/// The message with which an op of this record is refused once it has been changed.
template <class Record, class Change>
std::string refusal(const Record& record, std::size_t reads, std::size_t writes, const Change& change) {
  Op op;
  op.type = Record::op;
  op.name = "layer";
  op.attributes = attributes_of(record);
  op.inputs.resize(reads);
  op.outputs.resize(writes);
  EXPECT_NO_THROW(program::check_record(op)) << Record::op;
  change(op);
  try {
    program::check_record(op);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

bool says(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST(Records, AreHeldAgainstTheirOps) {
  EXPECT_TRUE(says(refusal(RmsNorm{1e-5}, 2, 2, [](Op& op) { op.attributes = {}; }), "'eps' is missing"));
  EXPECT_TRUE(says(refusal(RmsNorm{1e-5}, 2, 2, [](Op& op) { op.attributes.set("epsilon", 0.5); }),
                   "'epsilon' is not one of this op's"));
  EXPECT_TRUE(says(refusal(Rope{}, 2, 1, [](Op& op) { op.attributes.set("heads", 0.5); }), "not an integer"));
  EXPECT_TRUE(says(refusal(Add{}, 2, 1, [](Op& op) { op.inputs.pop_back(); }), "'add' of layer reads 1"));
  EXPECT_TRUE(says(refusal(Add{}, 2, 1, [](Op& op) { op.outputs.resize(2); }), "'add' of layer writes 2"));
  EXPECT_TRUE(says(refusal(program::SumSquares{{{0, 3}, {5, 7}}}, 1, 2,
                           [](Op& op) {
                             op.attributes.set("pieces", std::vector<std::int64_t>{1, 2, 3});
                           }),
                   "3 integers, not a multiple of 2"));
}

TEST(Records, SayWhichConstantsDifferByMicroBatch) {
  const auto& dropout = program::op_type(Dropout::op).record;
  EXPECT_TRUE(dropout.is_stepped("first_token"));
  EXPECT_FALSE(dropout.is_stepped("key"));
  EXPECT_FALSE(program::op_type(Add::op).record.is_stepped("first_token"));
  EXPECT_EQ(record_of<Dropout>(attributes_of(Dropout{.first_token = 7})).first_token, 7);
  for (const OpType* row : all_ops())
    EXPECT_TRUE(row->number != nullptr || !row->record.has_stepped) << row->record.name;
}

TEST(Records, ComeBackAsTheyWere) {
  program::OptimizerStep step;
  step.rule = "adamw";
  step.beta1 = 0.9;
  step.nesterov = true;
  step.seed = -3;
  step.pieces = {{1, 2, 0, -4, 5, 6, 7, 8}, {9, 10, 1, 12, 13, 14, 15, 16}};
  step.lr_scales = {1, 0.5};
  step.weight_decays = {0, 0.1};
  const Attributes attributes = attributes_of(step);
  EXPECT_EQ(attributes.get<std::vector<std::int64_t>>("pieces").size(), 16U);
  const auto back = record_of<program::OptimizerStep>(attributes);
  EXPECT_EQ(back.pieces, step.pieces);
  EXPECT_EQ(back.weight_decays, step.weight_decays);
  EXPECT_TRUE(back.rule == "adamw" && back.beta1 == 0.9 && back.nesterov && !back.master && back.seed == -3);
  EXPECT_EQ(attributes_of(back), attributes);
  // What is usual is left out, and stands for itself.
  EXPECT_FALSE(attributes_of(Linear{}).has("parts"));
  EXPECT_EQ(record_of<Linear>({}).parts, 1);
}

}  // namespace
}  // namespace ztrain::op_tables_test
