#include "kernels/dropout/dropout.hpp"

#include <cmath>

#include "base/error.hpp"
#include "kernels/elementwise/random_words.hpp"
#include "kernels/launch/pieces.hpp"
#include "kernels/launch/wide.hpp"

namespace ztrain::kernels {
namespace {

/// Whole blocks of random words.
template <class T>
constexpr std::int64_t dropout_pack = pack_of<T> < 4 ? 4 : pack_of<T>;

/// y may be x: each element is read before it is written.
template <class T>
KOKKOS_INLINE_FUNCTION void drop(const T* x, const std::uint32_t* __restrict words, std::uint32_t least,
                                 acc_t<T> factor, T* y, std::int64_t n) {
  if constexpr (widens<T>) {
    for_groups(n, [&](std::int64_t begin, auto count) {
      float values[wide_group];
      widen(x + begin, values, count);
      drop<float>(values, words + begin, least, factor, values, count);
      narrow(values, y + begin, count);
    });
    return;
  }
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i)
    y[i] = words[i] >= least ? static_cast<T>(factor * load(x[i])) : static_cast<T>(acc_t<T>(0));
}

struct Columns {
  std::int64_t own, all;
};

/// The words of elements [begin, begin + n) of rows of `own` columns, of `all` that have words. first: the
/// word of the first element. Room for n + 4.
ZTRAIN_FUNCTION void draw_rows(std::uint64_t key, std::uint64_t step, std::int64_t first, Columns columns,
                               std::int64_t begin, std::int64_t n, std::uint32_t* words) {
  for (std::int64_t done = 0; done < n;) {
    const std::int64_t row = (begin + done) / columns.own, column = (begin + done) % columns.own;
    const std::int64_t count = columns.own - column < n - done ? columns.own - column : n - done;
    draw_words(key, step, static_cast<std::uint64_t>(first + row * columns.all + column), count,
               words + done);
    done += count;
  }
}

}  // namespace

template <class T>
void dropout(Exec& exec, Matrix<const T> x, const DropoutMask& mask, const StepScalars* scalars,
             Matrix<T> y) {
  REQUIRE(x.rows == y.rows && x.cols == y.cols, "dropout: x is [{}, {}] and y [{}, {}]", x.rows, x.cols,
          y.rows, y.cols);
  REQUIRE(mask.rate >= 0 && mask.rate < 1, "dropout: the rate is {}; legal are 0 to below 1", mask.rate);
  const auto least = static_cast<std::uint32_t>(std::ldexp(mask.rate, 32));
  const auto factor = static_cast<acc_t<T>>(1 / (1 - mask.rate));
  const std::uint64_t key = mask.key;
  const std::int64_t all = mask.columns > 0 ? mask.columns : x.cols, own = x.cols;
  REQUIRE(0 <= mask.first_column && mask.first_column + own <= all, "dropout: columns {} to {} of {}",
          mask.first_column, mask.first_column + own, all);
  const std::int64_t first = mask.first_token * all + mask.first_column;
  constexpr std::int64_t size = dropout_pack<T>;
  for_pieces<size>(
      exec, x.rows * x.cols, KOKKOS_LAMBDA(const Piece<size> p) {
        const auto step = static_cast<std::uint64_t>(scalars->optimizer_step);
        const auto element = static_cast<std::uint64_t>(first + p.begin);
        const std::int64_t of_row = own, in_row = all, before = first;
        // Named out here, since nvcc lets no lambda take its first copy of a variable inside an if constexpr.
        // Not as pointers: a GPU's packs would end with their statement, one unread and the other written too
        // early.
        const auto from = p.in(x.data);
        auto to = p.out(y.data);
        const std::uint32_t bound = least;
        const acc_t<T> scale = factor;
        const std::uint64_t seed = key;
        if (of_row < in_row) {
          std::uint32_t words[(on_gpu ? size : quantum) + 4];
          draw_rows(seed, step, before, {of_row, in_row}, p.begin, p.n(), words);
          drop<T>(from, words, bound, scale, to, p.n());
        } else if constexpr (on_gpu) {
          std::uint32_t words[size];
          draw_words(seed, step, element, p.n(), words);
          drop<T>(from, words, bound, scale, to, p.n());
        } else {
          constexpr std::int64_t most_blocks = quantum / 4 + 1;
          std::uint32_t words[4 * (most_blocks + word_lanes)];
          const auto shift = static_cast<std::int64_t>(element % 4);
          draw_blocks(seed, step, element / 4, ceil_div(shift + p.n(), 4), words);
          drop<T>(from, words + shift, bound, scale, to, p.n());
        }
      });
}

ZTRAIN_INSTANCES(dropout)

}  // namespace ztrain::kernels
