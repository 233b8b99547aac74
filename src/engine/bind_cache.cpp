#include <cmath>

#include "engine/binders.hpp"
#include "engine/dispatch.hpp"
#include "kernels/attention/attention_cached.hpp"
#include "kernels/attention/cache_append.hpp"

namespace ztrain::engine {

Bound bind_cache_append(const Binding& b) {
  return with_type(b.out(0).dtype, [&]<class T>(Type<T>) -> Bound {
    const auto rows = in_matrix<T>(b, 0);
    const auto begin = in_vector<std::int32_t>(b, 1);
    const auto cache = out_matrix<T>(b, 0);
    return {[&exec = b.exec, rows, begin, cache] { kernels::cache_append<T>(exec, rows, begin, cache); },
            nullptr};
  });
}

Bound bind_attention_cached(const Binding& b) {
  return with_type(b.in(0).dtype, [&]<class T>(Type<T>) -> Bound {
    kernels::CachedAttentionInput<T> input;
    const std::int64_t heads = b.op.attributes.integer("heads");
    input.shape = {b.in(0).shape[0], heads, b.op.attributes.integer("kv_heads"), b.in(0).shape[1] / heads,
                   b.op.attributes.integer("window", 0)};
    input.scale = 1.0 / std::sqrt(static_cast<double>(input.shape.head_dim));
    input.q = in_matrix<T>(b, 0);
    input.k = in_matrix<T>(b, 1);
    input.v = in_matrix<T>(b, 2);
    input.begin = in_vector<std::int32_t>(b, 3);
    check(input);
    const auto o = out_matrix<T>(b, 0);
    return {[&exec = b.exec, input, o] { kernels::attention_cached<T>(exec, input, o); }, nullptr};
  });
}

}  // namespace ztrain::engine
