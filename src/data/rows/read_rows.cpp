#include "data/rows/read_rows.hpp"

#include <chrono>
#include <vector>

namespace ztrain::data {

std::int64_t read_rows(const RowSource& rows, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  const auto n = static_cast<std::size_t>(rows.sequence());
  std::vector<std::int32_t> tokens(n), targets(n), positions(n), document_start(n);
  std::vector<float> weights(n);
  const MicroBatch one{tokens.data(), targets.data(), weights.data(), positions.data(),
                       document_start.data()};
  std::int64_t row = 0;
  for (; row < rows.rows() && Clock::now() < end; ++row) rows.fill(row, {one, 0});
  return row;
}

}  // namespace ztrain::data
