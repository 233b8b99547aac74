#include "data/tokens/mask_stream.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace ztrain::data {

MaskStream::MaskStream(const TokenSource& source, std::string key) : source_(source), key_(std::move(key)) {}

std::int64_t MaskStream::count(std::int64_t begin, std::int64_t end) {
  if (!source_.has_mask()) return end - begin;
  std::int64_t trained = 0;
  while (begin < end) {
    while (begin >= end_) next_block();
    const std::int64_t stop = std::min(end, end_);
    trained +=
        std::accumulate(block_.begin() + (begin - begin_), block_.begin() + (stop - begin_), std::int64_t{0});
    begin = stop;
  }
  return trained;
}

std::uint64_t MaskStream::finish() {
  while (source_.has_mask() && end_ < source_.size()) next_block();
  return hash_;
}

void MaskStream::next_block() {
  constexpr std::int64_t block_tokens = std::int64_t{1} << 20;
  begin_ = end_;
  end_ = std::min(begin_ + block_tokens, source_.size());
  block_.resize(static_cast<std::size_t>(end_ - begin_));
  source_.read_mask(begin_, end_ - begin_, block_.data());
  hash_ = hash_bytes(block_.data(), block_.size(), hash_);
  const auto odd = std::find_if(block_.begin(), block_.end(), [](std::uint8_t value) { return value > 1; });
  if (odd == block_.end()) return;
  const Place place = source_.locate(begin_ + (odd - block_.begin()));
  // The message leaves out the value, because sources cut what files store to a byte.
  fail("{}: loss_mask[{}] of '{}' is neither 1 (predicted) nor 0", key_, place.position, place.file);
}

}  // namespace ztrain::data
