#pragma once
// Elements of a Program's tensors, which the host may not reach by their addresses: copied from and to the
// device's memory, once the device is through with what it was given.

#include <vector>

#include "base/shape.hpp"
#include "job/worker.hpp"

namespace ztrain::test {

/// count elements from the first-th on.
template <class T>
std::vector<T> read_elements(const job::Worker& worker, program::TensorId tensor, std::int64_t first,
                             std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  worker.device().finish();
  const T* const from = worker.memory().data<T>(worker.job().train(), tensor) + first;
  worker.memory().provider().read(values.data(), from, count * static_cast<std::int64_t>(sizeof(T)));
  return values;
}

template <class T>
T read_element(const job::Worker& worker, program::TensorId tensor, std::int64_t i) {
  return read_elements<T>(worker, tensor, i, 1).front();
}

template <class T>
void write_element(const job::Worker& worker, program::TensorId tensor, std::int64_t i, T value) {
  worker.device().finish();
  T* const to = worker.memory().data<T>(worker.job().train(), tensor) + i;
  worker.memory().provider().write(to, &value, sizeof value);
}

}  // namespace ztrain::test
