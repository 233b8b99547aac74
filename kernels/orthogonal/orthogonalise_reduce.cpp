#include <cmath>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "kernels/launch/instances.hpp"
#include "kernels/launch/threads.hpp"
#include "kernels/orthogonal/orthogonalise.hpp"

namespace ztrain::kernels {
namespace {

/// Elements that a thread takes: on a GPU neighbours take neighbouring elements.
constexpr std::int64_t each = on_gpu ? 1 : 2048;

/// item(i) for i in [0, count).
template <class Item>
void for_items(Exec& exec, std::int64_t count, const Item& item) {
  for_rows(
      exec, ceil_div(count, each), KOKKOS_LAMBDA(const std::int64_t block) {
        const std::int64_t begin = block * each, end = begin + each < count ? begin + each : count;
        for (std::int64_t i = begin; i < end; ++i) item(i);
      });
}

/// Calls stretch(i, n) for elements i to i + n - 1 of [0, count). A stretch ends before the next element
/// whose first + i is a multiple of `run`, so that one division serves all of its elements.
template <class Stretch>
void for_stretches(Exec& exec, std::int64_t count, std::int64_t first, std::int64_t run,
                   const Stretch& stretch) {
  for_rows(
      exec, ceil_div(count, each), KOKKOS_LAMBDA(const std::int64_t block) {
        const std::int64_t begin = block * each, end = begin + each < count ? begin + each : count;
        for (std::int64_t i = begin; i < end;) {
          const std::int64_t left = run - (first + i) % run, n = left < end - i ? left : end - i;
          stretch(i, n);
          i += n;
        }
      });
}

/// The place in the matrix of an element of a piece.
KOKKOS_INLINE_FUNCTION std::int64_t place_of(const MatrixPiece& piece, std::int64_t i) {
  const std::int64_t e = piece.first + i;
  return e / piece.run * piece.stride + piece.offset + e % piece.run;
}

/// Returns the number of elements after which a piece goes on elsewhere in the matrix.
std::int64_t run_of(const MatrixPiece& piece) {
  return piece.run == piece.stride ? piece.first + piece.count : piece.run;
}

template <class T>
void take(Exec& exec, const MatrixPiece& piece, const T* from, T* matrix) {
  for_stretches(
      exec, piece.count, piece.first, run_of(piece),
      KOKKOS_LAMBDA(const std::int64_t i, const std::int64_t n) {
        const T* const a = from + piece.begin + i;
        T* const b = matrix + place_of(piece, i);
        for (std::int64_t k = 0; k < n; ++k) b[k] = a[k];
      });
}

template <class T>
void give(Exec& exec, const MatrixPiece& piece, const T* matrix, T* to) {
  for_stretches(
      exec, piece.count, piece.first, run_of(piece),
      KOKKOS_LAMBDA(const std::int64_t i, const std::int64_t n) {
        const T* const a = matrix + place_of(piece, i);
        T* const b = to + piece.begin + i;
        for (std::int64_t k = 0; k < n; ++k) b[k] = a[k];
      });
}

template <class T>
void clear(Exec& exec, Vector<T> y) {
  for_items(
      exec, y.count, KOKKOS_LAMBDA(const std::int64_t i) { y.data[i] = static_cast<T>(0.0F); });
}

template <class T>
struct SquaresOfRow {
  using A = acc_t<T>;
  const T* x;
  A* squares;
  std::int64_t cols;

  void operator()(std::int64_t row) const {
    A sum = 0;
    for (std::int64_t i = 0; i < cols; ++i) sum += load(x[row * cols + i]) * load(x[row * cols + i]);
    squares[row] = sum;
  }
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t row) const {
    A sum = 0;
    for (std::int64_t i = threads.rank(); i < cols; i += threads.size())
      sum += load(x[row * cols + i]) * load(x[row * cols + i]);
    sum = threads.sum(sum);
    if (threads.rank() == 0) squares[row] = sum;
  }
};

/// squares[rows] = 1 / the norm of the matrix.
template <class A>
struct InverseNorm {
  A* squares;
  std::int64_t rows;

  KOKKOS_INLINE_FUNCTION static A inverse(A sum) {
    const A norm = std::sqrt(sum), least = static_cast<A>(orthogonal_eps);
    return 1 / (norm < least ? least : norm);
  }
  void operator()(std::int64_t) const {
    A sum = 0;
    for (std::int64_t i = 0; i < rows; ++i) sum += squares[i];
    squares[rows] = inverse(sum);
  }
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void by(const Threads& threads, std::int64_t) const {
    A sum = 0;
    for (std::int64_t i = threads.rank(); i < rows; i += threads.size()) sum += squares[i];
    sum = threads.sum(sum);
    if (threads.rank() == 0) squares[rows] = inverse(sum);
  }
};

template <class T>
void normalise(Exec& exec, T* x, std::int64_t rows, std::int64_t cols, acc_t<T>* squares) {
  for_warp_rows(exec, rows, SquaresOfRow<T>{x, squares, cols});
  for_shared_rows(exec, 1, threads_for(rows, 1), InverseNorm<acc_t<T>>{squares, rows});
  const acc_t<T>* const inverse = squares + rows;
  for_items(
      exec, rows * cols,
      KOKKOS_LAMBDA(const std::int64_t i) { x[i] = static_cast<T>(load(x[i]) * *inverse); });
}

/// square = a I + b gram + c square.
template <class T>
void polynomial(Exec& exec, const T* gram, T* square, std::int64_t dim) {
  for_stretches(
      exec, dim * dim, 0, dim, KOKKOS_LAMBDA(const std::int64_t i, const std::int64_t n) {
        using A = acc_t<T>;
        constexpr A b = static_cast<A>(orthogonal_b), c = static_cast<A>(orthogonal_c);
        const std::int64_t diagonal = i / dim - i % dim;  // of the row, from i on
        const A on =
            diagonal >= 0 && diagonal < n
                ? static_cast<A>(orthogonal_a) + b * load(gram[i + diagonal]) + c * load(square[i + diagonal])
                : A(0);
        for (std::int64_t k = i; k < i + n; ++k)
          square[k] = static_cast<T>(b * load(gram[k]) + c * load(square[k]));
        if (diagonal >= 0 && diagonal < n) square[i + diagonal] = static_cast<T>(on);
      });
}

}  // namespace

template <class T>
Orthogonaliser<T>::Orthogonaliser(Exec& exec, std::vector<OrthogonalMatrix> matrices,
                                  std::vector<MatrixPiece> pieces)
    : matrices_(std::move(matrices)), pieces_(std::move(pieces)) {
  for (const OrthogonalMatrix& m : matrices_) {
    const auto [it, fresh] = products_.try_emplace({m.rows, m.cols});
    if (!fresh) continue;
    const bool tall = m.rows > m.cols;
    const std::int64_t dim = tall ? m.cols : m.rows, other = tall ? m.rows : m.cols;
    const DType type = dtype_of<T>();
    it->second.gram =
        make_gemm({.trans_a = tall, .trans_b = !tall, .m = dim, .n = dim, .k = other}, type, type);
    it->second.square = make_gemm({.m = dim, .n = dim, .k = dim}, type, type);
    it->second.next = make_gemm({.m = m.rows, .n = m.cols, .k = dim}, type, type);
    for (Gemm* gemm : {it->second.gram.get(), it->second.square.get(), it->second.next.get()})
      gemm->prepare(exec);
  }
}

template <class T>
const Gemm* Orthogonaliser<T>::product() const {
  return products_.empty() ? nullptr : products_.begin()->second.next.get();
}

template <class T>
void Orthogonaliser<T>::run(Exec& exec, Vector<const T> x, Vector<T> y, Vector<std::byte> workspace) {
  clear(exec, y);
  for (const OrthogonalMatrix& m : matrices_) {
    const OrthogonalPlaces places = orthogonal_places(m.rows, m.cols, dtype_of<T>(), build_target());
    ASSERT(places.end <= workspace.count, "orthogonalise: {} bytes of workspace, and {} x {} needs {}",
           workspace.count, m.rows, m.cols, places.end);
    T* matrix = reinterpret_cast<T*>(workspace.data);
    T* next = reinterpret_cast<T*>(workspace.data + places.next);
    T* const gram = reinterpret_cast<T*>(workspace.data + places.gram);
    T* const square = reinterpret_cast<T*>(workspace.data + places.square);
    std::byte* const scratch = workspace.data + places.gemm;
    const MatrixPiece* const pieces = pieces_.data() + m.begin;
    for (const MatrixPiece& piece : std::span(pieces, at(m.pieces))) take(exec, piece, x.data, matrix);
    normalise(exec, matrix, m.rows, m.cols, reinterpret_cast<acc_t<T>*>(workspace.data + places.sums));
    const Products& products = products_.at({m.rows, m.cols});
    const bool tall = m.rows > m.cols;
    for (int step = 0; step < orthogonal_steps; ++step) {
      products.gram->run(exec, matrix, matrix, nullptr, gram, scratch);
      products.square->run(exec, gram, gram, nullptr, square, scratch);
      polynomial(exec, gram, square, tall ? m.cols : m.rows);
      products.next->run(exec, tall ? matrix : square, tall ? square : matrix, nullptr, next, scratch);
      std::swap(matrix, next);
    }
    for (const MatrixPiece& piece : std::span(pieces + m.pieces, at(m.copies)))
      give(exec, piece, matrix, y.data);
  }
}

ZTRAIN_FOR_FLOATS(ZTRAIN_CLASS_INSTANCE, Orthogonaliser)

}  // namespace ztrain::kernels
