#pragma once
// Sets of bytes of tensors.

#include <algorithm>
#include <map>
#include <vector>

#include "program/ir/order.hpp"

namespace ztrain::program {

/// Byte ranges of tensors with storage, by tensor; those of one tensor do not touch.
class ByteSet {
 public:
  void add(const ByteRange& r) {
    std::int64_t begin = r.begin, end = r.end;
    auto& pieces = pieces_[r.base];
    auto piece = pieces.lower_bound(begin);
    if (piece != pieces.begin() && std::prev(piece)->second >= begin) --piece;
    while (piece != pieces.end() && piece->first <= end) {
      begin = std::min(begin, piece->first);
      end = std::max(end, piece->second);
      piece = pieces.erase(piece);
    }
    pieces[begin] = end;
  }

  void remove(const ByteRange& r) {
    auto& pieces = pieces_[r.base];
    std::map<std::int64_t, std::int64_t> left;
    for (const auto& [begin, end] : pieces) {
      if (begin < std::min(end, r.begin)) left[begin] = std::min(end, r.begin);
      if (std::max(begin, r.end) < end) left[std::max(begin, r.end)] = end;
    }
    pieces = std::move(left);
  }

  bool covers(const ByteRange& r) const {
    const auto found = pieces_.find(r.base);
    if (found == pieces_.end()) return false;
    auto piece = found->second.upper_bound(r.begin);
    return piece != found->second.begin() && std::prev(piece)->second >= r.end;
  }

  bool overlaps(const ByteRange& r) const {
    const auto found = pieces_.find(r.base);
    return found != pieces_.end() && std::ranges::any_of(found->second, [&](const auto& piece) {
             return piece.first < r.end && r.begin < piece.second;
           });
  }

  std::vector<ByteRange> ranges() const {
    std::vector<ByteRange> all;
    for (const auto& [base, pieces] : pieces_)
      for (const auto& [begin, end] : pieces) all.push_back({base, begin, end});
    return all;
  }

  /// What is in both.
  ByteSet with(const ByteSet& other) const {
    ByteSet both;
    for (const ByteRange& a : ranges())
      if (const auto found = other.pieces_.find(a.base); found != other.pieces_.end())
        for (const auto& [begin, end] : found->second)
          if (const ByteRange r = common(a, {a.base, begin, end}); !r.empty()) both.add(r);
    return both;
  }

  bool operator==(const ByteSet& other) const { return ranges() == other.ranges(); }

 private:
  std::map<TensorId, std::map<std::int64_t, std::int64_t>> pieces_;  ///< by tensor: end by begin
};

/// Of a range that an op writes. A gather in place leaves the rank's own part as it is.
inline std::vector<ByteRange> changed_by(const Program& p, const Op& op, const ByteRange& written) {
  if (op.comm.kind != CommKind::all_gather) return {written};
  ByteSet changed;
  changed.add(written);
  changed.remove(byte_range(p, op.inputs[0]));
  return changed.ranges();
}

}  // namespace ztrain::program
