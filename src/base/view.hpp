#pragma once
// Non-owning typed views that kernels take. Row-major and dense.

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

}  // namespace ztrain
