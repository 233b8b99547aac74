#include "data/rows/row_source.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/preference_loss.hpp"

namespace ztrain::data {

Row row_of(const MicroBatch& b, std::int64_t row, std::int64_t sequence) {
  const std::int64_t at = row * sequence;
  return {
      {b.tokens + at, b.targets + at, b.weights + at, b.positions + at, b.document_start + at,
       b.sequences == nullptr ? nullptr : b.sequences + at,
       b.reference == nullptr ? nullptr : b.reference + at, b.places == nullptr ? nullptr : b.places + at},
      at};
}

void fill_padding(std::int64_t sequence, const Row& out) {
  std::fill_n(out.at.tokens, sequence, 0);
  std::fill_n(out.at.targets, sequence, 0);
  std::fill_n(out.at.weights, sequence, 0.0f);
  fill_places(0, sequence, out);
  if (out.at.sequences != nullptr)
    std::fill_n(out.at.sequences, sequence,
                static_cast<std::int32_t>(out.index / sequence * sequence_slots(sequence)));
  if (out.at.reference != nullptr) std::fill_n(out.at.reference, sequence, 0.0);
  if (out.at.places != nullptr) std::fill_n(out.at.places, sequence, -1);
}

void fill_places(std::int64_t begin, std::int64_t count, const Row& out) {
  for (std::int64_t i = 0; i < count; ++i) out.at.positions[begin + i] = static_cast<std::int32_t>(i);
  std::fill_n(out.at.document_start + begin, count, static_cast<std::int32_t>(out.index + begin));
}

void fill_in_order(const RowSource& source, std::int64_t first, std::int64_t micro, const MicroBatch& out) {
  for (std::int64_t r = 0; r < micro; ++r) {
    const Row row = row_of(out, r, source.sequence());
    if (first + r < source.rows())
      source.fill(first + r, row);
    else
      fill_padding(source.sequence(), row);
  }
}

std::int64_t read_rows(const RowSource& rows, double seconds) {
  const double end = now() + seconds;
  const auto n = static_cast<std::size_t>(rows.sequence());
  std::vector<std::int32_t> tokens(n), targets(n), positions(n), document_start(n);
  std::vector<float> weights(n);
  const MicroBatch one{tokens.data(), targets.data(), weights.data(), positions.data(),
                       document_start.data()};
  std::int64_t row = 0;
  for (; row < rows.rows() && now() < end; ++row) rows.fill(row, {one, 0});
  return row;
}

void CheckedTokens::read(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
  source->read(begin, count, out);
  // As unsigned numbers, negative ids are too large as well, so one comparison finds both.
  const auto bad = [&](std::int32_t id) { return static_cast<std::uint32_t>(id) >= vocab_size; };
  const std::int32_t* found = std::find_if(out, out + count, bad);
  if (found == out + count) return;
  const Place place = source->locate(begin + (found - out));
  fail(
      "{}: token {} of '{}' has id {}, which is not below model.vocab_size ({}); check model.vocab_size and "
      "data.format",
      key, place.position, place.file, source->id_text(begin + (found - out)), vocab_size);
}

void CheckedTokens::tell_places(std::int64_t begin, std::int64_t count, std::int64_t at,
                                const Row& out) const {
  if (out.at.places == nullptr) return;
  for (std::int64_t i = 0; i < count; ++i)
    out.at.places[at + i] = out.at.weights[at + i] != 0 ? first_place + begin + i : -1;
}

void CheckedTokens::read_weights(std::int64_t begin, std::int64_t count, float* out) const {
  if (!source->has_mask()) {
    std::fill_n(out, count, 1.0f);
    return;
  }
  std::array<std::uint8_t, 4096> block{};
  while (count > 0) {
    const std::int64_t here = std::min<std::int64_t>(count, block.size());
    source->read_mask(begin, here, block.data());
    std::transform(block.begin(), block.begin() + here, out,
                   [](std::uint8_t m) { return m != 0 ? 1.0f : 0.0f; });
    begin += here, count -= here, out += here;
  }
}

}  // namespace ztrain::data
