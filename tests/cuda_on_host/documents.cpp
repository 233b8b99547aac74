// What a GPU makes of document_start for its attention (kernels/attention/attention_documents.cu), run on the
// host.

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/attention/attention_documents.hpp"
#include "tests/cuda_on_host/orders.hpp"
#include "tests/support/attention_case.hpp"

namespace ztrain::kernels::documents_test {
namespace {

using namespace ztrain::test;

constexpr std::uint16_t untouched = 0x1234;
constexpr auto poison = std::byte{0x5A};

/// A micro-batch on the "GPU", before any kernel.
class Batch {
 public:
  Batch(const AttentionShape& shape, const AttentionWork& work, const Array<std::int32_t>& start,
        std::int64_t out_row, ThreadOrder order = ThreadOrder::forward)
      : start_(start),
        out(static_cast<std::size_t>(shape.tokens * out_row), untouched),
        workspace(static_cast<std::size_t>(work.library + 256), poison),  // the library's part, cut off
        stream_{order},
        pass{&stream_, shape, work, start_.data(), workspace.data(), out.data(), out_row} {}
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  template <class T>
  std::vector<T> part(std::int64_t at, std::int64_t count) const {
    std::vector<T> result(static_cast<std::size_t>(count));
    std::memcpy(result.data(), workspace.data() + at, result.size() * sizeof(T));
    return result;
  }
  /// Nothing but these bytes of the workspace was written.
  void expect_only(const std::vector<std::pair<std::int64_t, std::int64_t>>& parts) const {
    std::vector<std::byte> rest = workspace;
    for (const auto& [at, bytes] : parts) std::fill_n(rest.begin() + at, bytes, poison);
    EXPECT_EQ(rest, std::vector<std::byte>(rest.size(), poison)) << "more of the workspace was written";
  }
  /// NaN in all columns of the tokens that `spoilt` names, nothing else.
  template <class Spoilt>
  void expect_spoilt(const Spoilt& spoilt) const {
    const std::int64_t width = pass.shape.o_row();
    for (std::int64_t t = 0; t < pass.shape.tokens; ++t)
      for (std::int64_t i = 0; i < pass.out_row; ++i) {
        const std::uint16_t bits = out[static_cast<std::size_t>(t * pass.out_row + i)];
        const bool is_nan = std::isnan(float(bf16_of(bits))) && std::isnan(float(f16_of(bits)));
        ASSERT_TRUE(i < width && spoilt(t) ? is_nan : bits == untouched) << t << " " << i << ": " << bits;
      }
  }

  static bf16 bf16_of(std::uint16_t bits) { return std::bit_cast<bf16>(bits); }
  static f16 f16_of(std::uint16_t bits) { return std::bit_cast<f16>(bits); }

 private:
  Array<std::int32_t> start_;

 public:
  std::vector<std::uint16_t> out;
  std::vector<std::byte> workspace;

 private:
  CUstream_st stream_;

 public:
  const DocumentPass pass;
};

AttentionShape shape(std::int64_t tokens, std::int64_t sequence, std::int64_t documents,
                     std::int64_t window = 0) {
  return {tokens, 4, 2, 8, window, 0, sequence, static_cast<std::int32_t>(documents), false};
}

/// Of documents that begin at these tokens, the last of which is what the batch ends with.
std::vector<std::int64_t> begins(const Array<std::int32_t>& start) {
  std::vector<std::int64_t> result;
  for (std::size_t t = 0; t < start.size(); ++t)
    if (start[t] == static_cast<std::int32_t>(t)) result.push_back(static_cast<std::int64_t>(t));
  result.push_back(static_cast<std::int64_t>(start.size()));
  return result;
}

/// Entry i of the offsets: where the document begins, or where there are none any more.
void expect_documents(const Batch& batch, const std::vector<std::int64_t>& begin) {
  const AttentionShape& s = batch.pass.shape;
  const AttentionWork& w = batch.pass.work;
  const std::int64_t n = w.entries, found = static_cast<std::int64_t>(begin.size()) - 1;
  const auto begin_of = [&](std::int64_t i) { return begin[static_cast<std::size_t>(std::min(i, found))]; };
  const auto lengths = batch.part<std::int32_t>(w.lengths, n);
  const auto offsets = batch.part<std::int64_t>(w.offsets, 4 * (n + 1));
  const std::int64_t rows[] = {s.q_row(), w.kv_row, s.o_row(), s.heads};
  for (std::int64_t i = 0; i <= n; ++i) {
    for (std::int64_t of = 0; of < 4; ++of)
      ASSERT_EQ(offsets[static_cast<std::size_t>(of * (n + 1) + i)], begin_of(i) * rows[of])
          << of << ", entry " << i;
    if (i == n) break;
    ASSERT_EQ(lengths[static_cast<std::size_t>(i)], std::min(begin_of(i + 1) - begin_of(i), w.length)) << i;
  }
  // What no entry reaches: behind the longest document there may be, and behind the last entry.
  std::vector<char> reached(static_cast<std::size_t>(s.tokens), 0);
  for (std::int64_t i = 0; i < std::min(n, found); ++i)
    for (std::int64_t t = begin_of(i); t < std::min(begin_of(i + 1), begin_of(i) + w.length); ++t)
      reached[static_cast<std::size_t>(t)] = 1;
  batch.expect_spoilt([&](std::int64_t t) { return reached[static_cast<std::size_t>(t)] == 0; });
  batch.expect_only({{w.lengths, 4 * n}, {w.offsets, 32 * (n + 1)}});
}

struct Documents {
  std::int64_t tokens, sequence, most;
  std::vector<std::int64_t> lengths;
};

std::vector<std::int64_t> random_lengths(std::int64_t count, std::int64_t most) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < count; ++i)
    lengths.push_back(1 + static_cast<std::int64_t>(philox(5, 0, static_cast<std::uint64_t>(i))[0]) % most);
  return lengths;
}

const std::vector<Documents> batches = {
    {24, 8, 6, {3, 5, 8, 1, 1, 6}},                        // as many as there may be
    {24, 8, 9, {3, 5, 8, 8}},                              // less
    {24, 8, 3, {3, 5, 8, 1, 1, 6}},                        // more: the rest of the tokens is spoilt
    {24, 8, 1, {2, 22}},                                   // one entry
    {32, 8, 4, {9, 2, 20, 1}},                             // some too long: their ends are spoilt
    {8, 8, 40, {8}},                                       // most entries without tokens
    {1, 1, 1, {1}},                                        // one token
    {1024, 64, 1024, std::vector<std::int64_t>(1024, 1)},  // as many as threads
    {1025, 1025, 7, {1000, 24, 1}},                        // two tokens for a thread, none for most
    {3000, 300, 600, random_lengths(700, 9)},              // three, and a last thread with less
    {3000, 60, 40, random_lengths(700, 90)},               // too many and too long
    {4096, 64, 4100, std::vector<std::int64_t>(4096, 1)},  // more than threads
};

TEST(CudaDocuments, AreFound) {
  for (std::size_t i = 0; i < batches.size(); ++i)
    for (const ThreadOrder order : orders) {
      SCOPED_TRACE(::testing::Message() << "batch " << i << ", order " << static_cast<int>(order));
      const Documents& d = batches[i];
      const AttentionShape s = shape(d.tokens, d.sequence, d.most);
      const Array<std::int32_t> start = document_starts(d.tokens, d.lengths);
      Batch batch(s, attention_forward_work(s, AttentionWay::documents), start, s.o_row(), order);
      find_documents(batch.pass);
      expect_documents(batch, begins(start));
      if (::testing::Test::HasFatalFailure()) return;
    }
}

/// The gradient dq, a part of a matrix' columns, and dense copies of k and v.
TEST(CudaDocuments, AreFoundInColumns) {
  for (const Documents& d : {batches[2], batches[4], batches[10]}) {
    AttentionShape s = shape(d.tokens, d.sequence, d.most);
    s.row = (s.heads + 2 * s.kv_heads) * s.head_dim;
    const AttentionWork w = attention_backward_work(s, DType::bf16, AttentionWay::documents);
    ASSERT_NE(w.kv_row, s.kv_row());
    const Array<std::int32_t> start = document_starts(d.tokens, d.lengths);
    Batch batch(s, w, start, s.q_row());
    find_documents(batch.pass);
    expect_documents(batch, begins(start));
  }
}

/// Rows of the mask for the entries of a launch, in T.
template <class T>
void expect_mask(const Batch& batch, std::int64_t first) {
  const AttentionShape& s = batch.pass.shape;
  const AttentionWork& w = batch.pass.work;
  const std::int64_t rows = w.at_once * w.length;
  const auto mask = batch.part<T>(w.mask, rows * w.length);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t query = row % w.length, begin = first * w.length + row - query;
    const std::int64_t document = batch.pass.document_start[begin + query] - begin;
    for (std::int64_t key = 0; key < w.length; ++key) {
      const float value = mask[static_cast<std::size_t>(row * w.length + key)];
      const bool seen = key <= query && key >= document && (s.window == 0 || key > query - s.window);
      if (!seen) {
        ASSERT_LE(value, -65504.0f) << row << " " << key;
        ASSERT_TRUE(std::isfinite(value)) << row << " " << key;
      } else if (document < 0) {
        ASSERT_TRUE(std::isnan(value)) << row << " " << key;
      } else {
        ASSERT_EQ(value, 0) << row << " " << key;
      }
    }
  }
  batch.expect_only({{w.mask, 2 * rows * w.length}});
}

TEST(CudaMask, KeepsDocumentsApart) {
  // The third begins in one sequence and ends in the next, which is against the promise.
  const Array<std::int32_t> start = document_starts(96, {24, 1, 30, 17, 8, 15, 1});
  for (const std::int64_t window : {0, 1, 5, 24, 100})
    for (const std::int64_t at_once : {1, 2, 4}) {
      if (under_tsan && at_once != 2) continue;
      const AttentionShape s = shape(96, 24, 0, window);
      AttentionWork w = attention_forward_work(s, AttentionWay::masked);
      w.at_once = at_once;
      for (std::int64_t first = 0; first < w.entries; first += at_once) {
        SCOPED_TRACE(::testing::Message()
                     << "window " << window << ", entries from " << first << " on, " << at_once);
        const ThreadOrder order = orders[(window + first) % 3];
        Batch in_bf16(s, w, start, s.o_row(), order), in_f16(s, w, start, s.o_row(), order);
        write_mask(in_bf16.pass, first, DType::bf16);
        expect_mask<bf16>(in_bf16, first);
        write_mask(in_f16.pass, first, DType::f16);
        expect_mask<f16>(in_f16, first);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
}

/// A row has more keys than its threads write at once.
TEST(CudaMask, OfLongRows) {
  if (under_tsan) GTEST_SKIP() << "half a million threads";
  const std::int64_t length = 8 * 257;
  const AttentionShape s = shape(length, length, 0);
  Batch batch(s, attention_forward_work(s, AttentionWay::masked), document_starts(length, {1000, 1}),
              s.o_row());
  write_mask(batch.pass, 0, DType::bf16);
  expect_mask<bf16>(batch, 0);
}

TEST(CudaSequences, OfSeveralDocumentsAreSpoilt) {
  for (const std::int64_t out_row : {32, 64})
    for (const ThreadOrder order : orders) {
      const AttentionShape s = shape(40, 8, 5);
      // Whole; in two; one that reaches into the next; its rest and another.
      const Array<std::int32_t> start = document_starts(40, {8, 3, 5, 12, 4, 8});
      Batch batch(s, attention_forward_work(s, AttentionWay::sequences), start, out_row, order);
      spoil_split_sequences(batch.pass);
      batch.expect_spoilt([&](std::int64_t t) { return start[static_cast<std::size_t>(t)] != t - t % 8; });
      batch.expect_only({});
    }
}

/// In the order in which launches, and in each of them entries, heads and tokens follow.
TEST(CudaLse, IsPackedLaunchByLaunch) {
  AttentionShape s{160, 6, 3, 8, 0, 0, 8, 20, true};
  Array<float> lse = random<float>(s.tokens * s.heads, 3);
  for (const std::int64_t at_once : {1, 5, 20})
    for (const std::int64_t kv_heads : {1, 3})
      for (const ThreadOrder order : orders) {
        AttentionWork w = attention_backward_work(s, DType::bf16, AttentionWay::sequences);
        w.at_once = at_once;
        w.kv_heads = kv_heads;
        Batch batch(s, w, document_starts(s.tokens, {}), s.o_row(), order);
        pack_lse(batch.pass, lse.data());
        const std::int64_t heads = 2 * kv_heads;
        std::vector<float> expected;
        for (std::int64_t entries = 0; entries < w.entries; entries += at_once)
          for (std::int64_t from = 0; from < s.heads; from += heads)
            for (std::int64_t entry = entries; entry < entries + at_once; ++entry)
              for (std::int64_t head = from; head < from + heads; ++head)
                for (std::int64_t t = 0; t < w.length; ++t)
                  expected.push_back(lse[static_cast<std::size_t>((entry * w.length + t) * s.heads + head)]);
        EXPECT_TRUE(same_bits(batch.part<float>(w.lse, s.tokens * s.heads), expected))
            << at_once << " " << kv_heads;
        batch.expect_only({{w.lse, 4 * s.tokens * s.heads}});
      }
}

}  // namespace
}  // namespace ztrain::kernels::documents_test
