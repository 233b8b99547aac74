#include "checkpoint/value_hashes.hpp"

#include <algorithm>
#include <cstring>

#include "base/hash.hpp"
#include "base/shape.hpp"
#include "checkpoint/format/convert.hpp"

namespace ztrain::checkpoint {
namespace {

constexpr std::int64_t items_at_once = std::int64_t{1} << 18;

// Odd multipliers; the mixing is that of Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators" (2014).
constexpr std::uint64_t of_index = 0x9E3779B97F4A7C15u, of_bits = 0xD1342543DE82EF95u,
                        first_mix = 0xBF58476D1CE4E5B9u, second_mix = 0x94D049BB133111EBu;

/// key: of the first element.
template <class Bits>
std::uint64_t sum_of_hashes(const std::byte* values, std::int64_t count, std::uint64_t key) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, values + i * static_cast<std::int64_t>(sizeof bits), sizeof bits);
    std::uint64_t x = (key + static_cast<std::uint64_t>(i) * of_index) ^ (std::uint64_t{bits} * of_bits);
    x = (x ^ (x >> 30)) * first_mix;
    x = (x ^ (x >> 27)) * second_mix;
    sum += x ^ (x >> 31);
  }
  return sum;
}

std::uint64_t sum_of_hashes(const std::byte* values, std::int64_t count, std::int64_t size,
                            std::uint64_t key) {
  if (size == 2) return sum_of_hashes<std::uint16_t>(values, count, key);
  if (size == 4) return sum_of_hashes<std::uint32_t>(values, count, key);
  return size == 8 ? sum_of_hashes<std::uint64_t>(values, count, key)
                   : sum_of_hashes<std::uint8_t>(values, count, key);
}

}  // namespace

ValueHashes::ValueHashes(std::span<const ParameterShape> parameters)
    : sums_(parameters.size()), dtypes_(parameters.size(), -1) {
  for (const ParameterShape& p : parameters) keys_.push_back(hash_text(p.name));
}

void ValueHashes::add(std::size_t parameter, std::int64_t begin, std::int64_t count, const std::byte* values,
                      DType dtype) {
  if (dtypes_[parameter] < 0) set_dtype(parameter, dtype);
  const auto as = static_cast<DType>(dtypes_[parameter]);
  if (as != dtype) {
    block_.resize(static_cast<std::size_t>(count * size_of(as)));
    convert(values, dtype, block_.data(), as, count);
    values = block_.data();
  }
  sums_[parameter] += sum_of_hashes(values, count, size_of(as),
                                    keys_[parameter] + static_cast<std::uint64_t>(begin) * of_index);
}

void ValueHashes::add(const Place& place, std::span<const StateShard> shards) {
  std::vector<std::byte> copy;
  for (const StateShard& shard : shards) {
    const FlatUnit& unit = place.layout->unit(shard.unit);
    const std::int64_t size = size_of(shard.dtype), shard_begin = unit.shard_begin(place.at);
    for (const Piece& piece : place.layout->pieces(shard.unit, place.at)) {
      const ParameterShape& parameter = place.layout->parameters()[at(piece.parameter)];
      if (!owns(place.at, unit, parameter)) continue;
      const std::byte* const data = shard.data + (piece.flat_begin - shard_begin) * size;
      for (const LogicalRun& run : place.layout->logical_runs(
               piece.parameter, part_of(parameter.slice, place.at), piece.slice_begin, piece.count))
        for (std::int64_t done = 0, n = 0; done < run.count; done += n) {
          n = std::min(items_at_once, run.count - done);
          const std::byte* values = data + (run.slice_begin - piece.slice_begin + done) * size;
          if (shard.memory) {
            copy.resize(static_cast<std::size_t>(n * size));
            shard.memory->read(copy.data(), values, n * size);
            values = copy.data();
          }
          add(at(piece.parameter), run.logical_begin + done, n, values, shard.dtype);
        }
    }
  }
}

}  // namespace ztrain::checkpoint
