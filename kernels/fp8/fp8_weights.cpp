#include "kernels/fp8/fp8_weights.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernel_interface/kernel_workspace.hpp"
#include "kernels/fp8/fp8_scale.hpp"
#include "kernels/launch/device_array.hpp"
#include "kernels/launch/row_packs.hpp"

namespace ztrain::kernels {
namespace {

/// Rows of a table's entry, those that go to one team or thread, are [first, next entry's first) of a launch.
template <class Entry>
KOKKOS_INLINE_FUNCTION const Entry& entry_of(const Entry* table, std::int64_t count, std::int64_t row) {
  return table[last_begun(count, row, [=](std::int64_t i) { return table[i].first; })];
}

/// A run cut into rows, or where it is part of one row into chunks: `row` elements each, of which `begin` lie
/// before the run. Elements are counted from the first run's on, so that pointers to them are arguments of
/// the launch: a GPU knows what memory those point to.
struct Cut {
  std::int64_t at, begin, count, row;

  KOKKOS_INLINE_FUNCTION std::int64_t begin_of(std::int64_t i) const {
    const std::int64_t from = (begin / row + i) * row - begin;
    return from < 0 ? 0 : from;
  }
  KOKKOS_INLINE_FUNCTION std::int64_t end_of(std::int64_t i) const {
    const std::int64_t to = (begin / row + i + 1) * row - begin;
    return to > count ? count : to;
  }
  std::int64_t rows() const { return (begin + count - 1) / row - begin / row + 1; }
  /// Elements for which threads are made: longer rows take several turns.
  std::int64_t width() const { return std::min(row, fp8_weight_chunk); }
};

bool in_chunks(const Fp8Run& run) {
  return run.rows() == 1 && run.values.count > fp8_weight_chunk;
}
Cut cut(const Fp8Run& run, const bf16* values) {
  const std::int64_t at = run.values.data - values;
  if (in_chunks(run)) return {at, 0, run.values.count, fp8_weight_chunk};
  return {at, run.begin, run.values.count, run.row};
}

void check(const Fp8Run& run, const void* codes) {
  REQUIRE(run.values.count > 0 && run.row % 16 == 0 && run.begin % 16 == 0 && run.values.count % 16 == 0,
          "fp8 weights: a run of {} elements from {}, in rows of {}: all must be multiples of 16",
          run.values.count, run.begin, run.row);
  REQUIRE(on_words(run.values.data) && on_words(codes),
          "fp8 weights: runs and codes must begin on multiples of {} bytes", sizeof(PackWords));
}

struct LargestEntry {
  Cut cut;
  float* largest;  ///< [rows]
  std::int64_t first;
};
struct LargestOfRows {
  const LargestEntry* table;
  std::int64_t count;
  const bf16* values;
  template <class L>
  KOKKOS_INLINE_FUNCTION void operator()(const L& lanes, std::int64_t index) const {
    const LargestEntry entry = entry_of(table, count, index);
    const std::int64_t i = index - entry.first, begin = entry.cut.begin_of(i);
    const bf16* from = values + entry.cut.at + begin;
    find_largest(lanes, from, entry.cut.end_of(i) - begin, entry.largest + i);
  }
};

/// What the chunks of one row are joined into.
struct JoinEntry {
  const float* found;
  std::int64_t count;
  float* largest;
};
struct JoinChunks {
  const JoinEntry* table;
  template <class L>
  KOKKOS_INLINE_FUNCTION void operator()(const L& lanes, std::int64_t index) const {
    const JoinEntry entry = table[index];
    find_largest(lanes, entry.found, entry.count, entry.largest);
  }
};

struct ScaleEntry {
  Fp8Slots at;
  float* scales;
  bool magnitudes;
  std::int64_t first;
};
struct ScaleOfRows {
  const ScaleEntry* table;
  std::int64_t count;
  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t index) const {
    const ScaleEntry& entry = entry_of(table, count, index);
    const Fp8Slots at = entry.at;
    const std::int64_t row = index - entry.first, begin = at.weight_begin + row * at.row;
    const std::int64_t home = at.weight_begin / at.shard, last = (begin + at.row - 1) / at.shard;
    std::uint32_t largest = 0;
    for (std::int64_t shard = begin / at.shard; shard <= last; ++shard) {
      const std::int64_t slot =
          shard == home ? at.first + row : row - (shard * at.shard - at.weight_begin) / at.row;
      for (std::int64_t part = 0; part < at.parts; ++part) {
        const std::uint32_t bits = magnitude_bits(at.slots[(shard * at.parts + part) * at.stride + slot]);
        largest = bits > largest ? bits : largest;
      }
    }
    entry.scales[row] = entry.magnitudes ? std::bit_cast<float>(largest) : fp8_scale<f8e4m3>(largest);
  }
};

struct EncodeEntry {
  Cut cut;
  const float* scales;  ///< from the first row's on
  bool one_scale;
  std::int64_t first;
};
struct EncodeRows {
  const EncodeEntry* table;
  std::int64_t count;
  const bf16* values;
  f8e4m3* codes;
  template <class L>
  KOKKOS_INLINE_FUNCTION void operator()(const L& lanes, std::int64_t index) const {
    const EncodeEntry entry = entry_of(table, count, index);
    const std::int64_t i = index - entry.first, begin = entry.cut.begin_of(i);
    const bf16* from = values + entry.cut.at + begin;
    f8e4m3* to = codes + entry.cut.at + begin;
    const float factor = inverse_scale(entry.scales[entry.one_scale ? 0 : i]);
    lanes.each(entry.cut.end_of(i) - begin,
               [=](std::int64_t at, std::int64_t n) { encode(from + at, factor, to + at, n); });
  }
};

/// Entries, their rows, and the least width of these, for which teams are made.
template <class Entry>
class Table {
 public:
  Table() = default;

  /// Takes the entry's rows after those of the entries before it.
  void add(Entry entry, std::int64_t rows, std::int64_t width) {
    entry.first = rows_;
    rows_ += rows;
    width_ = entries_.empty() ? width : std::min(width_, width);
    entries_.push_back(entry);
  }
  void move_to_device() { device_ = DeviceArray<Entry>(entries_); }

  const Entry* data() const { return device_.data(); }
  std::int64_t count() const { return static_cast<std::int64_t>(entries_.size()); }
  std::int64_t rows() const { return rows_; }
  std::int64_t width() const { return width_; }

 private:
  std::vector<Entry> entries_;
  DeviceArray<Entry> device_;
  std::int64_t rows_ = 0, width_ = 0;
};

}  // namespace

Fp8Launch make_fp8_largest(const std::vector<Fp8Search>& searches, float* partials) {
  const bf16* const values = searches.empty() ? nullptr : searches.front().run.values.data;
  Table<LargestEntry> table;
  std::vector<JoinEntry> joins;
  std::int64_t chunks = 0;
  for (const Fp8Search& search : searches) {
    check(search.run, nullptr);
    const Cut parts = cut(search.run, values);
    const bool join = in_chunks(search.run);
    table.add({parts, join ? partials : search.slots, 0}, parts.rows(), parts.width());
    if (!join) continue;
    joins.push_back({partials, parts.rows(), search.slots});
    partials += parts.rows();
    chunks = std::max(chunks, parts.rows());
  }
  table.move_to_device();
  return [=, join_count = static_cast<std::int64_t>(joins.size()),
          joined = DeviceArray<JoinEntry>(joins)](Exec& exec) {
    for_wide_rows(exec, table.rows(), table.width(), LargestOfRows{table.data(), table.count(), values});
    for_wide_rows(exec, join_count, chunks, JoinChunks{joined.data()});
  };
}

Fp8Launch make_fp8_scales(const std::vector<Fp8Scaling>& weights) {
  Table<ScaleEntry> table;
  for (const Fp8Scaling& w : weights) table.add({w.slots, w.scales.data, w.magnitudes, 0}, w.scales.count, 1);
  table.move_to_device();
  return [table](Exec& exec) { for_rows(exec, table.rows(), ScaleOfRows{table.data(), table.count()}); };
}

Fp8Launch make_fp8_encode(const std::vector<Fp8Encoding>& encodings) {
  const bf16* const values = encodings.empty() ? nullptr : encodings.front().run.values.data;
  f8e4m3* const codes = encodings.empty() ? nullptr : encodings.front().codes;
  Table<EncodeEntry> table;
  for (const Fp8Encoding& e : encodings) {
    check(e.run, e.codes);
    const Cut parts = cut(e.run, values);
    REQUIRE(e.codes == codes + parts.at, "fp8 weights: codes must lie as far apart as the elements do");
    table.add({parts, e.scales + e.run.first_row(), in_chunks(e.run), 0}, parts.rows(), parts.width());
  }
  table.move_to_device();
  return [=](Exec& exec) {
    for_wide_rows(exec, table.rows(), table.width(), EncodeRows{table.data(), table.count(), values, codes});
  };
}

}  // namespace ztrain::kernels
