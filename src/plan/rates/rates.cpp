#include "plan/rates/rates.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/shape.hpp"

namespace ztrain::plan {

namespace {

bool is_floating(DType type) {
  return type != DType::i64 && type != DType::i32 && type != DType::u8;
}

}  // namespace

std::string kernel_name(const program::Program& program, const program::Op& op) {
  using program::CommKind;
  const bool sums = op.comm.kind == CommKind::reduce_scatter || op.comm.kind == CommKind::all_reduce;
  const CommKind kind = op.comm.kind == CommKind::recv ? CommKind::send : op.comm.kind;
  std::string name = op.communicates() ? std::string(name_of(kind)) : op.type;
  if (op.communicates() && !sums) return name;
  for (const auto* ids : {&op.inputs, &op.outputs})
    for (const program::TensorId id : *ids)
      if (const DType type = program.tensor(id).dtype; is_floating(type))
        return name + "." + std::string(name_of(type));
  return name;
}

const KernelRate* kernel_rate(const Rates& rates, const program::Program& program, const program::Op& op) {
  if (rates.kernels.empty()) return nullptr;
  const std::string name = kernel_name(program, op);
  for (const std::string& key : {name, op.communicates() ? std::string(name_of(op.comm.kind)) : op.type})
    if (const auto found = rates.kernels.find(key); found != rates.kernels.end()) return &found->second;
  const auto other = op.communicates() ? rates.kernels.end() : rates.kernels.find("other");
  return other == rates.kernels.end() ? nullptr : &other->second;
}

ProductShape product_shape(const program::Program& program, const program::Op& op) {
  ProductShape shape;
  if (op.outputs.empty()) return shape;
  const Shape& out = program.tensor(op.outputs[0]).shape;
  if (out.empty()) return shape;
  shape.columns = out.back();
  shape.rows = elements(out) / std::max<std::int64_t>(1, shape.columns);
  if (out.size() == 3) shape.groups = out[0], shape.rows = out[1];
  const double cells = static_cast<double>(shape.groups) * static_cast<double>(shape.rows) *
                       static_cast<double>(shape.columns);
  shape.depth = cells > 0 ? op.flops / (2 * cells) : 0;
  return shape;
}

double tile_use(const ProductShape& shape, const ProductRates& rates) {
  struct Tile {
    std::int64_t rows, columns;
    double rate;  ///< of one multiprocessor, relative to the largest tile's: less is reused
  };
  const std::int64_t r = rates.tile_rows, c = rates.tile_columns, side = rates.multiprocessors;
  if (side == 0 || shape.rows == 0 || shape.columns == 0) return 1;
  double best = 0;
  for (const Tile& t :
       {Tile{r, c, 1}, Tile{c, r, 1}, Tile{r, r, 0.9}, Tile{r, c / 4, 0.7}, Tile{r / 2, r / 2, 0.5}}) {
    const std::int64_t tiles =
        shape.groups * ceil_div(shape.rows, t.rows) * ceil_div(shape.columns, t.columns);
    const double cells = static_cast<double>(shape.groups * shape.rows) * static_cast<double>(shape.columns);
    const double paid =
        static_cast<double>(ceil_div(tiles, side) * side) * static_cast<double>(t.rows * t.columns);
    best = std::max(best, t.rate * cells / paid);
  }
  return std::min(1.0, best);
}

double measured_rate(const std::vector<ProductPoint>& points, const ProductShape& shape) {
  double weights = 0, sum = 0;
  const auto log2 = [](double x) { return std::log2(std::max(1.0, x)); };
  for (const ProductPoint& p : points) {
    const std::array<double, 3> apart{
        log2(static_cast<double>(p.rows)) - log2(static_cast<double>(shape.rows)),
        log2(static_cast<double>(p.columns)) - log2(static_cast<double>(shape.columns)),
        log2(static_cast<double>(p.depth)) - log2(shape.depth)};
    double square = 0;
    for (const double x : apart) square += x * x;
    const double weight = 1 / (square * square + 1e-6);
    weights += weight;
    sum += weight * std::log(p.flops_per_second);
  }
  return weights > 0 ? std::exp(sum / weights) : 0;
}

double largest_of(double n) {
  if (n < 2) return 0;
  // The quantile (n - 0.375) / (n + 0.25), by bisection of the distribution's own function.
  const double wanted = (n - 0.375) / (n + 0.25);
  double low = 0, high = 9;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < wanted ? low : high) = middle;
  }
  return low;
}

}  // namespace ztrain::plan
