#include "base/error.hpp"
#include "kernels/sinks/sinks.hpp"
#include "kernels/sinks/sinks_rows.hpp"

namespace ztrain::kernels {

template <class T, class G>
void sinks_backward(Exec& exec, Sinks<T> sinks, Matrix<const T> o, Matrix<const acc_t<T>> lse,
                    Matrix<const T> dout, Vector<G> dsinks, bool accumulate, void* workspace) {
  REQUIRE(lse.rows == o.rows && lse.cols > 0 && o.cols % lse.cols == 0 && dout.rows == o.rows &&
              dout.cols == o.cols && dsinks.count == sinks.all.count && sinks.first >= 0 &&
              sinks.first + lse.cols <= sinks.all.count,
          "gradient of sinks: o is [{}, {}], dout [{}, {}], lse [{}, {}], sinks [{}] from {} on, dsinks [{}]",
          o.rows, o.cols, dout.rows, dout.cols, lse.rows, lse.cols, sinks.all.count, sinks.first,
          dsinks.count);
  const std::int64_t heads = lse.cols, blocks = ceil_div(o.rows, sink_tokens);
  auto* const sums = static_cast<double*>(workspace);
  for_shared_rows(exec, blocks * heads, 128,
                  SinkTerms<T>{sinks.all.data + sinks.first, o.data, dout.data, lse.data, o.rows, heads,
                               o.cols / heads, sums});
  for_shared_rows(exec, dsinks.count, warp_lanes,
                  SinkSums<T, G>{sums, blocks, heads, sinks.first, accumulate, dsinks.data});
}

ZTRAIN_GRADIENT_INSTANCES(sinks_backward)

}  // namespace ztrain::kernels
