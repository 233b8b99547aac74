#include "kernels/attention/attention_cached_plain.hpp"

namespace ztrain::kernels {

template <class T>
void attention_cached(Exec& exec, const CachedAttentionInput<T>& input, Matrix<T> o) {
  attention_cached_plain(exec, input, o);
}

template void attention_cached(Exec&, const CachedAttentionInput<float>&, Matrix<float>);
template void attention_cached(Exec&, const CachedAttentionInput<bf16>&, Matrix<bf16>);
template void attention_cached(Exec&, const CachedAttentionInput<f16>&, Matrix<f16>);
template void attention_cached(Exec&, const CachedAttentionInput<double>&, Matrix<double>);

}  // namespace ztrain::kernels
