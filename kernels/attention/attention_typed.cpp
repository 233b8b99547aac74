#include <utility>

#include "kernel_interface/with_type.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/attention_prepared.hpp"

namespace ztrain::kernels {
namespace {

template <class T>
class Typed final : public PreparedAttention {
 public:
  Typed(const AttentionSpec& spec, AttentionRemark remark) : spec_(spec), remark_(std::move(remark)) {}

  void run(Exec& exec, const AttentionOperands& p) override {
    const AttentionShape& s = spec_.shape;
    const std::int64_t q_cols = s.heads * s.head_dim, k_cols = s.kv_heads * s.head_dim;
    const std::int64_t keys = s.key_count();
    const auto input = [](const void* data, std::int64_t rows, std::int64_t cols) {
      return Matrix<const T>{static_cast<const T*>(data), rows, cols};
    };
    const auto output = [](void* data, std::int64_t rows, std::int64_t cols) {
      return Matrix<T>{static_cast<T*>(data), rows, cols};
    };
    const Matrix<acc_t<T>> lse{static_cast<acc_t<T>*>(p.lse), s.tokens, s.heads};
    const AttentionInput<T> in{s,
                               input(p.q, s.tokens, q_cols),
                               input(p.k, keys, k_cols),
                               input(p.v, keys, k_cols),
                               {p.document_start, s.tokens}};
    if (spec_.direction == Direction::forward)
      attention_forward<T>(exec, in, output(p.o, s.tokens, q_cols), lse);
    else
      attention_backward<T>(exec, in, input(p.o, s.tokens, q_cols), lse, input(p.dout, s.tokens, q_cols),
                            output(p.dq, s.tokens, q_cols), output(p.dk, keys, k_cols),
                            output(p.dv, keys, k_cols), {p.workspace, spec_.workspace_bytes});
  }

  std::string describe() const override { return remark_.description; }
  bool slow() const override { return remark_.slow; }

 private:
  AttentionSpec spec_;
  AttentionRemark remark_;
};

}  // namespace

std::unique_ptr<PreparedAttention> make_attention_typed(const AttentionSpec& spec, AttentionRemark remark) {
  return with_type(spec.type, [&]<class T>() -> std::unique_ptr<PreparedAttention> {
    return std::make_unique<Typed<T>>(spec, std::move(remark));
  });
}

}  // namespace ztrain::kernels
