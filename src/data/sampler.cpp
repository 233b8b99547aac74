#include "data/sampler.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "data/permutation.hpp"

namespace ztrain::data {
namespace {

[[noreturn]] void refuse_id(const TokenRange& range, std::int64_t position, std::int32_t id,
                            std::int64_t vocab_size) {
  const Place place = range.source->locate(position);
  fail(
      "{}: token {} of '{}' has id {}, which is not below model.vocab_size ({}); check model.vocab_size and "
      "data.format",
      range.key, place.position, place.file, static_cast<std::uint32_t>(id), vocab_size);
}

void check_ids(const TokenRange& range, std::int64_t position, const std::int32_t* ids, std::int64_t count,
               std::int64_t vocab_size) {
  // As unsigned numbers, negative ids are too large as well, and one comparison tells both.
  const auto bad = [&](std::int32_t id) { return static_cast<std::uint32_t>(id) >= vocab_size; };
  const std::int32_t* found = std::find_if(ids, ids + count, bad);
  if (found != ids + count) refuse_id(range, position + (found - ids), *found, vocab_size);
}

struct Row {
  std::int64_t index, sequence, vocab_size;
};

/// Row number row.index of the micro-batch from one window. Reads straight into tokens and targets, without a
/// buffer.
void fill_row(const TokenRange& range, std::int64_t window, const Row& row, const MicroBatch& out) {
  const std::int64_t n = row.sequence, offset = row.index * n, begin = range.begin + window * n;
  std::int32_t* tokens = out.tokens + offset;
  std::int32_t* targets = out.targets + offset;
  range.source->read(begin, n, tokens);
  range.source->read(begin + n, 1, targets + n - 1);
  check_ids(range, begin, tokens, n, row.vocab_size);
  check_ids(range, begin + n, targets + n - 1, 1, row.vocab_size);
  std::copy(tokens + 1, tokens + n, targets);
  std::fill_n(out.weights + offset, n, 1.0f);
}

void fill_padding(const Row& row, const MicroBatch& out) {
  const std::int64_t offset = row.index * row.sequence;
  std::fill_n(out.tokens + offset, row.sequence, 0);
  std::fill_n(out.targets + offset, row.sequence, 0);
  std::fill_n(out.weights + offset, row.sequence, 0.0f);
}

void fill_places(const Row& row, const MicroBatch& out) {
  const std::int64_t offset = row.index * row.sequence;
  for (std::int64_t i = 0; i < row.sequence; ++i) out.positions[offset + i] = static_cast<std::int32_t>(i);
  std::fill_n(out.document_start + offset, row.sequence, static_cast<std::int32_t>(offset));
}

}  // namespace

Sampler::Sampler(TokenRange range, std::int64_t sequence, std::int64_t seed, std::int64_t vocab_size)
    : range_(std::move(range)),
      sequence_(sequence),
      windows_(range_.windows(sequence)),
      vocab_size_(vocab_size),
      key_(hash_text("data order", static_cast<std::uint64_t>(seed))) {
  REQUIRE(windows_ > 0, "{} has {} tokens, fewer than one window of data.sequence + 1 = {}", range_.key,
          range_.end - range_.begin, sequence + 1);
}

std::int64_t Sampler::window(std::int64_t index) const {
  const Permutation order(windows_, key_, static_cast<std::uint64_t>(index / windows_));
  return order(index % windows_);
}

void Sampler::fill(std::int64_t first, std::int64_t micro, const MicroBatch& out) const {
  for (std::int64_t r = 0; r < micro; ++r) {
    const Row row{r, sequence_, vocab_size_};
    fill_row(range_, window(first + r), row, out);
    fill_places(row, out);
  }
}

void fill_in_order(const TokenRange& range, std::int64_t sequence, std::int64_t vocab_size,
                   std::int64_t first, std::int64_t micro, const MicroBatch& out) {
  const std::int64_t windows = range.windows(sequence);
  for (std::int64_t r = 0; r < micro; ++r) {
    const Row row{r, sequence, vocab_size};
    if (first + r < windows)
      fill_row(range, first + r, row, out);
    else
      fill_padding(row, out);
    fill_places(row, out);
  }
}

}  // namespace ztrain::data
