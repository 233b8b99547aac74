#include "layout/token_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/shape.hpp"

namespace ztrain {

std::string to_string(const std::vector<TokenRun>& runs) {
  std::string text;
  for (const TokenRun& run : runs)
    text += fmt::format("{}{} to {}", text.empty() ? "" : " and ", run.token, run.token + run.count - 1);
  return text;
}

TokenOrder::TokenOrder(int ranks, int groups, int multiple)
    : ranks_(ranks), groups_(groups), multiple_(multiple) {
  ASSERT(groups > 0 && ranks % groups == 0, "{} ranks do not form {} groups", ranks, groups);
}

std::int64_t TokenOrder::padded(std::int64_t tokens) const {
  return round_up(tokens, std::int64_t{std::lcm(ranks_ * multiple_, groups_ > 1 ? 2 * groups_ : 1)});
}

std::vector<TokenRun> TokenOrder::runs(std::int64_t tokens, std::int64_t begin, std::int64_t end) const {
  ASSERT(padded(tokens) == tokens && 0 <= begin && begin < end && end <= tokens,
         "rows {} to {} of {} tokens on {} ranks", begin, end, tokens, ranks_);
  if (groups_ == 1) return {{begin, end - begin}};
  const std::int64_t chunk = tokens / (2 * groups_);
  std::vector<TokenRun> runs;
  for (std::int64_t row = begin; row < end;) {
    const std::int64_t number = row / chunk, group = number / 2;  // of the chunk in this order
    const std::int64_t of_tokens = number % 2 == 0 ? group : 2 * groups_ - 1 - group;
    const std::int64_t next = std::min(end, (number + 1) * chunk);
    const std::int64_t token = of_tokens * chunk + row % chunk;
    if (!runs.empty() && runs.back().token + runs.back().count == token)
      runs.back().count += next - row;
    else
      runs.push_back({token, next - row});
    row = next;
  }
  return runs;
}

std::vector<TokenRun> TokenOrder::part(std::int64_t tokens, int parts, int index) const {
  return runs(tokens, index * tokens / parts, (index + 1) * tokens / parts);
}

}  // namespace ztrain
