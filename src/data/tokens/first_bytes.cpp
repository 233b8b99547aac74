#include "data/tokens/first_bytes.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.hpp"

namespace ztrain::data {
namespace {

constexpr std::int64_t most_sampled = 4096;  ///< pairs of ids
constexpr std::size_t fewest_sampled = 16;   ///< fewer pairs are too often alike by accident
/// Ids at or above this mean a wrong width, unless the model's vocabulary is larger.
constexpr std::int64_t most_words = 1 << 20;

/// Two ids side by side, or the halves of one id of twice the width.
struct Pair {
  std::int64_t low = 0, high = 0;
  std::int64_t whole() const {
    return high * ids_of_16_bits + low;
  }  ///< the pair as one id, of two 16-bit halves
};

std::int64_t id_at(const std::byte* at, int width) {
  std::uint32_t id = 0;
  std::memcpy(&id, at, static_cast<std::size_t>(width));
  return id;
}

/// Returns the first pairs of ids of this many bytes. Leaves out a half pair at the end of the file.
std::vector<Pair> first_pairs(const InputFile& file, int width) {
  const std::int64_t count = std::min(file.size() / (2 * width), most_sampled);
  std::vector<std::byte> bytes(static_cast<std::size_t>(2 * width * count));
  file.read(0, std::ssize(bytes), bytes.data());
  std::vector<Pair> pairs(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const std::byte* at = bytes.data() + i * 2 * static_cast<std::size_t>(width);
    pairs[i] = {id_at(at, width), id_at(at + width, width)};
  }
  return pairs;
}

/// Returns whether every second id is at most `most`, and the others are not.
bool alternate(const std::vector<Pair>& pairs, std::int64_t most) {
  return pairs.size() >= fewest_sampled &&
         std::ranges::all_of(pairs, [&](const Pair& p) { return p.high <= most; }) &&
         std::ranges::any_of(pairs, [&](const Pair& p) { return p.low > most; });
}

/// Returns the upper half of the largest id of a vocabulary.
std::int64_t upper_half(std::int64_t vocab_size) {
  return std::max<std::int64_t>(vocab_size - 1, 0) / ids_of_16_bits;
}

bool are_whole_ids(const std::vector<Pair>& pairs, std::int64_t vocab_size) {
  return std::ranges::all_of(pairs, [&](const Pair& p) { return p.whole() < vocab_size; });
}

bool are_two_ids(const std::vector<Pair>& pairs, std::int64_t vocab_size) {
  return std::ranges::all_of(pairs, [&](const Pair& p) { return std::max(p.low, p.high) < vocab_size; });
}

}  // namespace

int likely_width(const InputFile& file, std::int64_t vocab_size) {
  const std::vector<Pair> pairs = first_pairs(file, 2);
  if (vocab_size > ids_of_16_bits) {
    const std::int64_t most = upper_half(std::max(most_words, vocab_size));
    return std::ranges::all_of(pairs, [&](const Pair& p) { return p.high <= most; }) ? 4 : 2;
  }
  // Read as 16 bits, 32-bit ids below 2^18 alternate with upper halves of at most 3. A file of small 16-bit
  // ids may look the same; then the vocabulary and the share of zero upper halves decide.
  if (!alternate(pairs, 3)) return 2;
  const auto zeros = std::ranges::count(pairs, 0, &Pair::high);
  const bool narrow = vocab_size > 0 && 2 * zeros < std::ssize(pairs) && are_two_ids(pairs, vocab_size);
  return narrow ? 2 : 4;
}

void require_width(const InputFile& file, int width, std::int64_t vocab_size, const std::string& key) {
  const std::int64_t most = width == 2 ? upper_half(vocab_size) : 0;
  const std::string every_second = most == 0 ? "0" : fmt::format("at most {}", most);
  REQUIRE(!alternate(first_pairs(file, width), most),
          "{}: '{}' is read as ids of {} bits, of which every second is {}, as in a file of {} bits: {}", key,
          file.path(), 8 * width, every_second, 16 * width,
          width == 2 ? "give data.format = \"bin-uint32\""
                     : "write it as uint16 or uint32 (NumPy: ids.astype(\"uint32\").tofile(...))");
  if (width == 2 || vocab_size == 0 || likely_width(file, vocab_size) == 4) return;
  const std::vector<Pair> pairs = first_pairs(file, 2);
  REQUIRE(are_whole_ids(pairs, vocab_size) || !are_two_ids(pairs, vocab_size),
          "{}: '{}' is read as ids of 32 bits, of which some are not below model.vocab_size ({}), and as ids "
          "of 16 bits all are: give data.format = \"bin-uint16\"",
          key, file.path(), vocab_size);
}

}  // namespace ztrain::data
