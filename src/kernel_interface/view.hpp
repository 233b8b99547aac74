#pragma once
// Non-owning typed views that kernels take. Row-major, and dense but for Columns.

#include <cstdint>
#include <type_traits>

namespace ztrain {

/// count elements at data.
template <class T>
struct Vector {
  T* data = nullptr;
  std::int64_t count = 0;
  operator Vector<const T>() const requires(!std::is_const_v<T>) { return {data, count}; }
};

/// rows x cols elements at data; row r starts at data + r * cols.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  operator Matrix<const T>() const requires(!std::is_const_v<T>) { return {data, rows, cols}; }
};

/// rows x cols elements of a wider matrix; row r starts at data + r * row.
template <class T>
struct Columns {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row = 0;
  Columns() = default;
  Columns(T* first, std::int64_t row_count, std::int64_t width, std::int64_t stride)
      : data(first), rows(row_count), cols(width), row(stride) {}
  Columns(Matrix<T> m) : data(m.data), rows(m.rows), cols(m.cols), row(m.cols) {}
  operator Columns<const T>() const requires(!std::is_const_v<T>) { return {data, rows, cols, row}; }
  bool dense() const { return row == cols; }
};

}  // namespace ztrain
