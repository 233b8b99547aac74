#pragma once
// Serial float64 Newton-Schulz iteration of one matrix, product by product as kernel_interface/orthogonal.hpp
// writes it.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernel_interface/orthogonal.hpp"

namespace ztrain::kernels::reference {

/// x: row-major, rows x cols; returns (a + b A + c A^2) x with A = x x^T.
inline std::vector<double> newton_schulz_step(const std::vector<double>& x, std::size_t rows,
                                              std::size_t cols) {
  const auto times = [rows](const std::vector<double>& left, const std::vector<double>& right,
                            std::size_t width) {
    std::vector<double> product(rows * width, 0);
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t k = 0; k < rows; ++k)
        for (std::size_t j = 0; j < width; ++j)
          product[i * width + j] += left[i * rows + k] * right[k * width + j];
    return product;
  };
  std::vector<double> gram(rows * rows, 0);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < rows; ++j)
      for (std::size_t k = 0; k < cols; ++k) gram[i * rows + j] += x[i * cols + k] * x[j * cols + k];
  const std::vector<double> once = times(gram, x, cols), twice = times(gram, once, cols);
  std::vector<double> next(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    next[i] = orthogonal_a * x[i] + orthogonal_b * once[i] + orthogonal_c * twice[i];
  return next;
}

inline std::vector<double> orthogonalised(std::vector<double> x, std::size_t rows, std::size_t cols) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  for (double& v : x) v /= std::max(std::sqrt(squares), orthogonal_eps);
  for (int step = 0; step < orthogonal_steps; ++step) x = newton_schulz_step(x, rows, cols);
  return x;
}

}  // namespace ztrain::kernels::reference
