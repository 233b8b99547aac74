#include "data/rows/window_rows.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "data/tokens/mask_stream.hpp"

namespace ztrain::data {

WindowRows::WindowRows(CheckedTokens tokens, std::int64_t begin, std::int64_t end, std::int64_t sequence)
    : tokens_(std::move(tokens)), begin_(begin), end_(end), sequence_(sequence) {
  counts_.rows = end - begin > sequence ? (end - begin - 1) / sequence : 0;
  REQUIRE(counts_.rows > 0, "{} has {} tokens, fewer than one window of data.sequence + 1 = {}", tokens_.key,
          end - begin, sequence + 1);
  counts_.tokens = counts_.rows * sequence;
  MaskStream mask(*tokens_.source, tokens_.key);
  counts_.trained = mask.count(begin + 1, begin + 1 + counts_.tokens);
  mask_identity_ = mask.finish();
}

void WindowRows::fill(std::int64_t row, const Row& out) const {
  const std::int64_t n = sequence_, begin = begin_ + row * n;
  // Reads straight into tokens and targets, without a buffer.
  tokens_.read(begin, n, out.at.tokens);
  tokens_.read(begin + n, 1, out.at.targets + n - 1);
  std::copy(out.at.tokens + 1, out.at.tokens + n, out.at.targets);
  tokens_.read_weights(begin + 1, n, out.at.weights);
  fill_places(0, n, out);
}

}  // namespace ztrain::data
