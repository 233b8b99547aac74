#include <algorithm>
#include <array>
#include <vector>

#include "engine/dispatch.hpp"
#include "kernels/heads/head_parts.hpp"
#include "kernels/heads/record.hpp"

namespace ztrain::engine {
namespace {

Bound bind_head_parts(const Binding& b) {
  const auto parts = b.record<HeadParts>();
  const std::int64_t heads = std::max<std::int64_t>(1, parts.heads);
  return with_type(b.out(0).dtype, [&]<class T>() -> Bound {
    kernels::HeadInputs<T> inputs;
    std::array<std::int64_t, 2> widths{};
    for (std::size_t i = 0; i < b.op.inputs.size(); ++i) {
      const auto x = in_matrix<T>(b, i);
      const bool shared = parts.shared_input && i == 1;
      widths[i] = shared ? x.cols : x.cols / heads;
      inputs.at[i] = {x.data, x.cols, shared ? 0 : widths[i]};
    }
    struct Part {
      kernels::HeadLayout layout;
      Matrix<T> y;
      bool sums;
    };
    std::vector<Part> outputs;
    for (std::size_t i = 0; i < b.op.outputs.size(); ++i) {
      const auto y = out_matrix<T>(b, i);
      const bool sums = parts.shared_output && i == 1;
      const std::int64_t width = sums ? y.cols : y.cols / heads;
      outputs.push_back({kernels::head_layout(parts, static_cast<std::int64_t>(i), width, widths), y, sums});
    }
    return {[&exec = b.exec, inputs, heads, outputs = std::move(outputs)] {
      for (const Part& part : outputs)
        (part.sums ? kernels::head_parts_sum<T> : kernels::head_parts<T>)(exec, inputs, part.layout, heads,
                                                                          part.y);
    }};
  });
}

}  // namespace

std::span<const KernelRow> heads_kernels() {
  static constexpr KernelRow rows[] = {
      {HeadParts::op, bind_head_parts},
  };
  return rows;
}

}  // namespace ztrain::engine
