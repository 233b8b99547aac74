// What the check of placements refuses of 8-bit codes, beside the faults of every communication
// (placements.cpp).

#include <gtest/gtest.h>

#include "kernels/fp8/record.hpp"
#include "program/passes/final_passes.hpp"
#include "tests/support/coded_job.hpp"

namespace ztrain::program::placed_codes_test {
namespace {

using test::refusal;

TEST(PlacedCodes, FaultsAreRefused) {
  for (const char* scaling : {"tensorwise", "rowwise"})
    for (const int rank : {0, 1}) {
      const JobSpec spec = test::in_codes(1, 1, 2, scaling);
      config::Model dims = test::dims_of_codes();
      dims.attention_output_bias = true;
      const Program train =
          compile(model::decoder(dims, {32, DType::bf16, model::Objective::loss}), spec, rank).train();
      Program bias = train, part = train, early = train, alone = train;
      for (Op& op : bias.ops)
        if (op.type == LinearFp8::op && op.attributes.has("adds_bias"))
          op.attributes.set("adds_bias", std::int64_t{rank});
      EXPECT_NE(refusal([&] { verify_placements(bias); }).find("o_proj.bias' is added"), std::string::npos);
      for (Op& op : part.ops)
        if (op.type == Fp8Scales::op)
          edit<Fp8Scales>(op.attributes, [&](Fp8Scales& scales) {
            for (ScaledWeight& w : scales.weights) w.parts = 1;
          });
      EXPECT_NE(refusal([&] { verify_placements(part); }).find("of a part of the weight alone"),
                std::string::npos);
      for (Op& op : early.ops)
        if (op.type == Fp8Scales::op)
          edit<Fp8Scales>(op.attributes, [&](Fp8Scales& scales) {
            for (ScaledWeight& w : scales.weights) w.magnitudes = 0;
          });
      EXPECT_NE(refusal([&] { verify_placements(early); }).find("is scales of a part"), std::string::npos);
      for (Op& op : alone.ops)
        if (op.type.starts_with("fp8_quantize") && op.attributes.has("found")) {
          op.inputs.pop_back();
          op.attributes.set("found", std::int64_t{0});
        }
      EXPECT_NE(refusal([&] { verify_placements(alone); }).find("fp8_quantize"), std::string::npos);
    }
}

}  // namespace
}  // namespace ztrain::program::placed_codes_test
