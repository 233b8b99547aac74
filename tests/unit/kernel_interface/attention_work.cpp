// How attention is done on GPUs: the ways for a shape, and that their workspaces are what is reserved.

#include "kernel_interface/attention_work.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace ztrain::attention_work_test {
namespace {

using enum AttentionWay;

std::vector<AttentionWay> list(const AttentionWays& ways) {
  return {ways.begin(), ways.end()};
}
std::vector<AttentionWay> forward(const AttentionShape& s, DType type = DType::bf16) {
  return list(attention_ways(s, type, false));
}
std::vector<AttentionWay> backward(const AttentionShape& s, DType type = DType::bf16) {
  return list(attention_ways(s, type, true));
}

/// 32 heads of 128 over 8 key-value heads.
AttentionShape shape(std::int64_t tokens, std::int64_t sequence, std::int32_t documents, bool deterministic) {
  return {tokens, 32, 8, 128, 0, 0, sequence, documents, deterministic};
}

using Ways = std::vector<AttentionWay>;

TEST(AttentionWays, FollowWhatIsKnownOfTheDocuments) {
  for (const bool deterministic : {true, false}) {
    EXPECT_EQ(forward(shape(8192, 4096, 2, deterministic)), (Ways{sequences, plain}));
    EXPECT_EQ(backward(shape(8192, 4096, 2, deterministic)), (Ways{sequences, plain}));
    EXPECT_EQ(forward(shape(8192, 4096, 40, deterministic)), (Ways{documents, masked, plain}));
    EXPECT_EQ(forward(shape(8192, 4096, 0, deterministic)), (Ways{masked, plain}));
    EXPECT_EQ(backward(shape(8192, 4096, 0, deterministic)), (Ways{masked, plain}));
  }
  EXPECT_EQ(backward(shape(8192, 4096, 40, true)), (Ways{masked, plain}));
  EXPECT_EQ(backward(shape(8192, 4096, 40, false)), (Ways{documents, masked, plain}));
  // A sequence that does not divide the tokens says nothing; so many documents are not packed.
  EXPECT_EQ(forward(shape(8192, 3000, 1, true)), (Ways{sequences, plain}));
  EXPECT_EQ(forward(shape(8192, 4096, 8192, true)), (Ways{masked, plain}));
}

TEST(AttentionWays, OfAPartOfTheQueriesIsPlainAlone) {
  AttentionShape part = shape(8192, 4096, 2, false);
  part.keys = 2 * part.tokens;
  EXPECT_EQ(forward(part), Ways{AttentionWay::plain});
  EXPECT_EQ(backward(part), Ways{AttentionWay::plain});
  EXPECT_FALSE(lacks_documents(part, DType::bf16, false));
}

TEST(AttentionWays, OfCappedScoresIsPlainAlone) {
  AttentionShape capped = shape(8192, 4096, 2, false);
  capped.soft_cap = 50;
  EXPECT_EQ(forward(capped), Ways{AttentionWay::plain});
  EXPECT_EQ(backward(capped), Ways{AttentionWay::plain});
}

TEST(AttentionWays, AdviseALimitOfDocumentsWhereItWouldHelp) {
  const AttentionShape unknown{.tokens = 256, .heads = 4, .kv_heads = 2, .head_dim = 16, .sequence = 64};
  AttentionShape known = unknown, odd = unknown;
  known.documents = 8;
  odd.head_dim = 6;
  EXPECT_TRUE(lacks_documents(unknown, DType::bf16, false));
  EXPECT_FALSE(lacks_documents(unknown, DType::bf16, true)) << "deterministic sums";
  EXPECT_FALSE(lacks_documents(known, DType::bf16, false));
  EXPECT_FALSE(lacks_documents(unknown, DType::f32, false)) << "cuDNN has none";
  EXPECT_FALSE(lacks_documents(odd, DType::bf16, false));
  known = unknown;
  known.deterministic = false;
  EXPECT_TRUE(lacks_documents(known, DType::bf16, true));
}

TEST(AttentionWays, ArePlainForWhatTheLibraryLacks) {
  for (const DType type : {DType::f32, DType::f64}) {
    EXPECT_EQ(forward(shape(64, 64, 1, true), type), Ways{plain});
    EXPECT_EQ(backward(shape(64, 64, 1, true), type), Ways{plain});
  }
  AttentionShape s = shape(64, 64, 1, true);
  s.head_dim = 100;
  EXPECT_EQ(forward(s), Ways{plain});
  EXPECT_EQ(forward({1, 2, 1, 64}), Ways{plain});
  // Rows that do not begin on multiples of 16 bytes.
  s = shape(64, 64, 1, true);
  s.row = 48 * 128 + 4;
  EXPECT_EQ(forward(s), Ways{plain});
  EXPECT_EQ(backward(s), Ways{plain});
  // The mask, and the gradient of the scores, of 65,536 tokens are 8 GiB and more.
  EXPECT_EQ(forward(shape(65536, 65536, 0, false)), Ways{plain});
  EXPECT_EQ(backward(shape(65536, 65536, 1, true)), Ways{plain});
  EXPECT_EQ(backward(shape(65536, 65536, 1, false)), (Ways{sequences, plain}));
}

/// Parts lie behind one another, aligned, and launches divide the work evenly.
void expect_sound(const AttentionShape& s, const AttentionWork& w, std::int64_t reserved) {
  EXPECT_LE(w.end, reserved);
  if (w.way == plain) return;
  EXPECT_EQ(w.entries % w.at_once, 0);
  EXPECT_EQ(s.kv_heads % w.kv_heads, 0);
  EXPECT_GE(w.end - w.library, attention_library_bytes);
  for (const std::int64_t at : {w.lengths, w.offsets, w.copies, w.mask, w.lse, w.library}) {
    EXPECT_EQ(at % 256, 0);
    EXPECT_LT(at, w.end);
  }
  if (w.way == documents) {
    EXPECT_EQ(w.entries, s.documents);
    EXPECT_GE(w.offsets - w.lengths, 4 * w.entries);
    EXPECT_GE((w.copies > 0 ? w.copies : w.library) - w.offsets, 32 * (w.entries + 1));
    if (w.copies > 0) {
      EXPECT_GE(w.library - w.copies, 8 * s.tokens * s.kv_heads * s.head_dim);
    }
  } else {
    EXPECT_EQ(w.entries * w.length, s.tokens);
  }
  if (w.way == masked) {
    EXPECT_GE((w.lse > 0 ? w.lse : w.library) - w.mask, 2 * w.at_once * w.length * w.length);
  }
}

TEST(AttentionWork, FitsWhatIsReserved) {
  for (const std::int64_t tokens : {200, 4096, 8192, 32768})
    for (const std::int64_t sequences_of : {0, 8, 200, 4096})
      for (const std::int32_t documents_of : {0, 1, 2, 64})
        for (const std::int64_t head_dim : {24, 64, 128, 256})
          for (const std::int64_t row : {std::int64_t{0}, 18 * head_dim})
            for (const bool deterministic : {true, false}) {
              const AttentionShape s{tokens,       14,           2, head_dim, 0, row, sequences_of,
                                     documents_of, deterministic};
              for (const auto way : forward(s))
                expect_sound(s, attention_forward_work(s, way),
                             attention_forward_bytes(s, DType::bf16, Target::cuda));
              for (const auto way : backward(s)) {
                const auto w = attention_backward_work(s, DType::bf16, way);
                expect_sound(s, w, attention_backward_bytes(s, DType::bf16, Target::cuda));
                if (way == sequences || way == masked) {
                  EXPECT_GE(w.library - w.lse, 4 * s.tokens * s.heads) << "room for the sums of the softmax";
                }
              }
            }
}

TEST(AttentionWork, LaunchesKeepTheGradientOfTheScoresSmall) {
  const AttentionShape s = shape(16384, 8192, 2, true);
  const AttentionWork w = attention_backward_work(s, DType::bf16, sequences);
  EXPECT_EQ(w.at_once, 1);
  EXPECT_EQ(w.kv_heads, 2);  // 8 heads x 8192 x 8192 x 2 bytes are 1 GiB
  const AttentionWork free = attention_backward_work(shape(16384, 8192, 2, false), DType::bf16, sequences);
  EXPECT_EQ(free.at_once, 2);
  EXPECT_EQ(free.kv_heads, 8);
}

/// Of packed documents the library would sum dk and dv in matrices of row * heads / kv_heads columns.
TEST(AttentionWork, PackedDocumentsTakeDenseKeysInBackward) {
  const AttentionShape dense = shape(8192, 4096, 40, false);
  AttentionShape columns = dense;
  columns.row = 48 * 128;
  const AttentionWork plain_rows = attention_backward_work(dense, DType::bf16, documents);
  EXPECT_EQ(plain_rows.copies, 0);
  EXPECT_EQ(plain_rows.kv_row, 8 * 128);
  const AttentionWork w = attention_backward_work(columns, DType::bf16, documents);
  EXPECT_GT(w.copies, 0);
  EXPECT_EQ(w.kv_row, 8 * 128);
  // The copies, and rows of dq that are half as long again.
  EXPECT_EQ(w.end - plain_rows.end, 8 * 8192 * 1024 + 4 * 8192 * 16 * 128);
  EXPECT_EQ(attention_forward_work(columns, documents).copies, 0);
  EXPECT_EQ(attention_forward_work(columns, documents).kv_row, 48 * 128);
  EXPECT_EQ(attention_backward_work(columns, DType::bf16, masked).copies, 0);
  EXPECT_EQ(attention_backward_work(columns, DType::bf16, masked).kv_row, 48 * 128);
  AttentionShape single{8192, 16, 16, 64, 0, 48 * 64, 4096, 40, false};
  EXPECT_EQ(attention_backward_work(single, DType::bf16, documents).copies, 0);
  EXPECT_EQ(attention_backward_work(single, DType::bf16, documents).kv_row, 48 * 64);
}

TEST(AttentionWork, IsTheKernelsOwnOnCpus) {
  const AttentionShape s = shape(100, 50, 2, true);
  EXPECT_EQ(attention_forward_bytes(s, DType::bf16, Target::cpu), 0);
  EXPECT_EQ(attention_backward_bytes(s, DType::bf16, Target::cpu),
            attention_backward_workspace_bytes(100, 32, 128, DType::bf16));
}

}  // namespace
}  // namespace ztrain::attention_work_test
