#include "job/evaluation.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/shape.hpp"

namespace ztrain::job {
namespace {

struct Sum {
  double loss = 0, weight = 0, balance = 0, z = 0;
  PreferenceSums pairs;
  std::int64_t rows = 0;
  std::string failure;
  /// A NaN's sign, which would be printed, means nothing.
  double mean() const {
    return weight > 0 && !std::isnan(loss) ? loss / weight : std::numeric_limits<double>::quiet_NaN();
  }
};

/// A batch that cannot be read becomes padding, since the other ranks wait for its evaluation.
void fill_or_pad(const data::RowSource& rows, std::int64_t first, std::int64_t micro,
                 const data::MicroBatch& batch, std::string& failure) {
  try {
    return data::fill_in_order(rows, first, micro, batch);
  } catch (const Error& e) {
    failure = e.what();
  }
  for (std::int64_t r = 0; r < micro; ++r)
    data::fill_padding(rows.sequence(), data::row_of(batch, r, rows.sequence()));
}

/// Micro-batches of a set that are evaluated.
struct Walk {
  std::int64_t micro = 1;    ///< rows of a micro-batch
  std::int64_t batches = 0;  ///< micro-batches of each rank
  const std::function<void(const std::string&)>& beat;
  std::int64_t* places = nullptr;  ///< gets those of each micro-batch (data::MicroBatch)
};

/// Collective. Evaluates the first rows of a set, and calls `hear` after each micro-batch of all ranks with
/// the number of its first row. Returns why rows could not be read on this rank, or "".
std::string each_batch(Worker& worker, const data::RowSet& set, const Walk& walk,
                       const std::function<void(std::int64_t)>& hear) {
  const data::RowSource& rows = *set.rows;
  const std::int64_t micro = walk.micro, stride = micro * worker.data_ranks();
  data::BatchPart part = part_of_batches(worker, micro * rows.sequence());
  std::string failure;
  for (std::int64_t b = 0; b < walk.batches; ++b) {
    walk.beat(fmt::format("{}, batch {} of {}", set.name, b + 1, walk.batches));
    const InputAddresses inputs = worker.inputs(0);
    std::ranges::fill(inputs.shares, 0.0F);  // the loss is the cross-entropy
    data::MicroBatch to = batch_of(inputs);
    to.places = walk.places;
    part.fill(to, [&](const data::MicroBatch& batch) {
      fill_or_pad(rows, b * stride + worker.data_index() * micro, micro, batch, failure);
    });
    worker.evaluate_batch();
    hear(b * stride);
  }
  return failure;
}

Sum sum_over(Worker& worker, const config::Deck& deck, const data::RowSet& set,
             const std::function<void(const std::string&)>& beat, const BatchHearer& hearer) {
  const data::RowSource& rows = *set.rows;
  const std::int64_t micro = deck.batch.micro, stride = micro * worker.data_ranks();
  const std::int64_t batches = std::min(deck.evaluation.batches, ceil_div(rows.rows(), stride));
  const int ranks = worker.mesh().shape().size(AxisSet::all());
  Sum sum;
  sum.rows = std::min(batches * stride, rows.rows());
  sum.failure = each_batch(worker, set, {micro, batches, beat, hearer.places.data()}, [&](std::int64_t) {
    if (hearer.hear) hearer.hear();
    for (int r = 0; r < ranks; ++r) {
      sum.loss += worker.partials()[r].loss_sum;
      sum.weight += worker.partials()[r].weight_sum;
    }
    if (const auto experts = worker.experts()) sum.balance += experts->balance_sum, sum.z += experts->z_sum;
    if (const auto pairs = worker.preference()) sum.pairs += *pairs;
  });
  return sum;
}

}  // namespace

data::MicroBatch batch_of(const InputAddresses& a) {
  return {a.tokens, a.targets, a.weights, a.positions, a.document_start, a.sequences, a.reference};
}

std::int64_t own_tokens(Worker& worker, std::int64_t tokens) {
  const TokenOrder& order = worker.job().evaluate().token_order;
  return order.padded(tokens) / order.ranks();
}

data::BatchPart part_of_batches(Worker& worker, std::int64_t tokens) {
  const Coordinate& at = worker.mesh().coordinate();
  return {tokens, worker.job().evaluate().token_order, at.index_in(context_axes)};
}

Losses evaluate(Worker& worker, const config::Deck& deck, const std::vector<data::RowSet>& sets,
                const std::function<void(const std::string&)>& beat, const BatchHearer& hearer) {
  Losses losses;
  Sum all;
  for (const data::RowSet& set : sets) {
    const Sum sum = sum_over(worker, deck, set, beat, hearer);
    losses.sets.push_back({set.name, sum.mean(), sum.weight});
    if (worker.preference() && sum.weight > 0) losses.sets.back().pairs = sum.pairs.means();
    all.loss += sum.loss;
    all.weight += sum.weight;
    all.balance += sum.balance;
    all.z += sum.z;
    all.pairs += sum.pairs;
    if (!sum.failure.empty()) losses.failure = sum.failure;
    losses.rows += sum.rows;
    losses.rows_in_all += set.rows->rows();
  }
  losses.all = all.mean();
  losses.tokens = all.weight;
  if (worker.experts() && all.weight > 0)
    losses.experts = ExpertLosses{all.balance / all.weight, all.z / all.weight};
  if (worker.preference() && all.weight > 0) losses.pairs = all.pairs.means();
  return losses;
}

RowLosses losses_of_rows(Worker& worker, const data::RowSet& set,
                         const std::function<void(const std::string&)>& beat) {
  const std::int64_t rows = set.rows->rows(), stride = worker.data_ranks();
  const MeshShape& mesh = worker.mesh().shape();
  RowLosses losses{std::vector<double>(static_cast<std::size_t>(rows)), ""};
  losses.failure = each_batch(worker, set, {1, ceil_div(rows, stride), beat}, [&](std::int64_t first) {
    for (int r = 0; r < mesh.ranks(); ++r) {
      const std::int64_t row = first + Coordinate(mesh, r).index_in(sequence_axes);
      if (row < rows) losses.nats[static_cast<std::size_t>(row)] += worker.partials()[r].loss_sum;
    }
  });
  return losses;
}

std::string describe(const Losses& losses) {
  std::string each;
  for (const SetLoss& set : losses.sets)
    each += fmt::format("{}{} {:.4f}", each.empty() ? "" : ", ", set.name, set.loss);
  std::string unit = "nats a token";
  if (const auto& pairs = losses.pairs;
      pairs && std::isnan(pairs->accurate))  // Answers with labels have none.
    unit = fmt::format("an answer, margin {:.4f}", pairs->margin());
  else if (pairs)
    unit = fmt::format("a pair, margin {:.4f}, accuracy {:.3f}", pairs->margin(), pairs->accurate);
  return fmt::format("validation loss {:.4f} {}{}{}{}", losses.all, unit,
                     losses.sets.size() > 1 ? " (" + each + ")" : "",
                     losses.experts ? fmt::format(", balance loss {:.4f}", losses.experts->balance) : "",
                     losses.rows < losses.rows_in_all
                         ? fmt::format(" over {} of {} sequences", losses.rows, losses.rows_in_all)
                         : "");
}

}  // namespace ztrain::job
