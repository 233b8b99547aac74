#pragma once
// Memory that will be needed soon, asked for while the processor multiplies. Rows of a head lie a whole row
// of the matrix apart, mostly on pages of their own, where no processor's own prefetching follows them.

#include <array>
#include <cstdint>

namespace ztrain::kernels {

/// A queue of rows. What does not fit is not asked for: it only takes longer then.
class Prefetch {
 public:
  /// `rows` rows of `cols` elements, `stride` apart.
  template <class T>
  void add(const T* first, std::int64_t stride, std::int64_t rows, std::int64_t cols) {
    if (count_ == most || rows <= 0) return;
    part_[static_cast<std::size_t>(count_++)] = {reinterpret_cast<const char*>(first),
                                                 stride * static_cast<std::int64_t>(sizeof(T)), rows,
                                                 cols * static_cast<std::int64_t>(sizeof(T))};
  }

  /// Asks for the next n rows.
  void take(int n) {
    for (; n > 0 && next_ < count_; --n) {
      Part& p = part_[static_cast<std::size_t>(next_)];
      constexpr std::int64_t line = 64;
      for (std::int64_t at = 0; at < p.bytes; at += line) __builtin_prefetch(p.from + at, 0, 2);
      p.from += p.stride;
      if (--p.rows == 0) ++next_;
    }
    if (next_ == count_) next_ = count_ = 0;
  }

 private:
  static constexpr int most = 16;
  struct Part {
    const char* from;
    std::int64_t stride, rows, bytes;
  };
  std::array<Part, most> part_;
  int next_ = 0, count_ = 0;
};

}  // namespace ztrain::kernels
