#include "data/rows/row_order.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "data/rows/permutation.hpp"

namespace ztrain::data {

std::int64_t SourceCourse::rows() const {
  return std::accumulate(parts.begin(), parts.end(), std::int64_t{0},
                         [](std::int64_t sum, const FilePart& part) { return sum + part.rows; });
}

RowOrder::RowOrder(const SourceCourse& course, std::uint64_t key)
    : key_(key), sources_(course.sources), place_(course.place) {
  ASSERT(!course.parts.empty(), "the course of source '{}' has no files", course.name);
  for (const FilePart& part : course.parts) {
    Level level;
    level.from = part.from;
    level.rows = part.rows;
    if (!levels_.empty()) {
      level.rows += levels_.back().rows;
      level.joined = position(part.from, levels_.size() - 1);
    }
    levels_.push_back(level);
  }
}

std::int64_t RowOrder::operator()(std::int64_t number) const {
  return row(number, levels_.size() - 1);
}

RowOrder::Position RowOrder::position(std::int64_t number) const {
  return position(number, levels_.size() - 1);
}

std::int64_t RowOrder::permuted(std::int64_t index, std::int64_t rows, std::int64_t epoch,
                                std::uint64_t key) const {
  return Permutation(rows, key, static_cast<std::uint64_t>(epoch * sources_ + place_))(index);
}

std::int64_t RowOrder::row(std::int64_t number, std::size_t level) const {
  const Level& now = levels_[level];
  if (level == 0) return permuted(number % now.rows, now.rows, number / now.rows, key_);
  const std::int64_t index = number - now.from, rest = now.rest();
  if (index >= rest)
    return permuted((index - rest) % now.rows, now.rows, now.joined.epoch + 1 + (index - rest) / now.rows,
                    key_);
  const std::int64_t mixed = permuted(index, rest, now.joined.epoch, hash_text("files added", key_ + level));
  const std::int64_t before = levels_[level - 1].rows, unseen = before - now.joined.seen;
  return mixed < unseen ? row(now.from + mixed, level - 1) : before + mixed - unseen;
}

RowOrder::Position RowOrder::position(std::int64_t number, std::size_t level) const {
  const Level& now = levels_[level];
  const std::int64_t first = level == 0 ? 0 : now.joined.epoch, seen = level == 0 ? 0 : now.joined.seen,
                     drawn = number - (level == 0 ? 0 : now.from) + seen;
  const std::int64_t complete = std::max<std::int64_t>(0, drawn - 1) / now.rows;
  return {first + complete, drawn - complete * now.rows};
}

}  // namespace ztrain::data
