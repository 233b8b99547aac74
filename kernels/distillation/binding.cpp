#include "engine/dispatch.hpp"
#include "kernels/distillation/distillation.hpp"
#include "kernels/distillation/record.hpp"

namespace ztrain::engine {
namespace {

using program::HeadChunk;

/// Rows of a chunk in an operand of all tokens.
template <class M>
M rows_of_chunk(const HeadChunk& chunk, const M& all) {
  return rows_of(all, chunk.begin, chunk.rows);
}
template <class T>
Vector<T> rows_of_chunk(const HeadChunk& chunk, const Vector<T>& all) {
  return {all.data + chunk.begin, chunk.rows};
}

Vector<const kernels::LogitSums> logit_sums(const Binding& b, std::size_t input) {
  return {b.input<kernels::LogitSums>(input), b.in(input).shape[0]};
}

Bound bind_teacher_sums(const Binding& b) {
  using Op = program::TeacherSums;
  const auto chunk = b.record<Op>();
  const auto words = rows_of_chunk(chunk, in_matrix<std::int32_t>(b, Op::words));
  const kernels::Lesson lesson{words.data, rows_of_chunk(chunk, in_matrix<float>(b, Op::shares)).data,
                               words.cols};
  const kernels::Words own{chunk.first_word, chunk.own_words};
  return with_sum_type(b.in(Op::logits).dtype, [&]<class A>() {
    return launch(b, kernels::teacher_sums<A>, in_matrix<A>(b, Op::logits), own, lesson,
                  out_vector<double>(b, Op::sums));
  });
}

Bound bind_distill_tokens(const Binding& b) {
  using Op = program::DistillTokens;
  const auto chunk = b.record<Op>();
  const auto shares = rows_of_chunk(chunk, in_matrix<float>(b, Op::shares));
  const kernels::ChunkTokens tokens{logit_sums(b, Op::sums),
                                    rows_of_chunk(chunk, in_vector<std::int32_t>(b, Op::targets)),
                                    rows_of_chunk(chunk, in_vector<float>(b, Op::token_weights)),
                                    {},
                                    {nullptr, shares.data, shares.cols, chunk.share}};
  const kernels::DistilledTokens results{out_vector<double>(b, Op::loss), out_vector<double>(b, Op::report),
                                         out_vector<double>(b, Op::terms), chunk.accumulate};
  return launch(b, kernels::distill_tokens, tokens, in_vector<double>(b, Op::taught), results);
}

Bound bind_likeliest_words(const Binding& b) {
  using Op = program::LikeliestWords;
  const auto chunk = b.record<Op>();
  const auto words = out_matrix<std::int32_t>(b, Op::words);
  const kernels::Words own{chunk.first_word, chunk.own_words};
  const kernels::Likeliest<std::int32_t, float> to{words.data, b.output<float>(Op::log_likelihoods),
                                                   words.rows, words.cols};
  return with_sum_type(b.in(Op::logits).dtype, [&]<class A>() {
    return launch(b, kernels::likeliest_words<A>, in_matrix<A>(b, Op::logits), own, logit_sums(b, Op::sums),
                  to);
  });
}

Bound bind_join_likeliest(const Binding& b) {
  using Op = program::JoinLikeliest;
  const auto chunk = b.record<Op>();
  const auto parts = in_matrix<std::int32_t>(b, Op::parts);
  const auto words = rows_of_chunk(chunk, out_matrix<std::int32_t>(b, Op::words));
  const auto logs = rows_of_chunk(chunk, out_matrix<float>(b, Op::log_likelihoods));
  const kernels::Likeliest<const std::int32_t, const float> from{
      parts.data, b.input<float>(Op::log_likelihoods_of_parts), parts.rows, parts.cols};
  const kernels::Likeliest<std::int32_t, float> to{words.data, logs.data, words.rows, words.cols};
  return launch(b, kernels::join_likeliest, from, to);
}

}  // namespace

std::span<const KernelRow> distillation_kernels() {
  static constexpr KernelRow rows[] = {
      {program::TeacherSums::op, bind_teacher_sums},
      {program::DistillTokens::op, bind_distill_tokens},
      {program::LikeliestWords::op, bind_likeliest_words},
      {program::JoinLikeliest::op, bind_join_likeliest},
  };
  return rows;
}

}  // namespace ztrain::engine
