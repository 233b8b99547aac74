#include "program/schedules/middle.hpp"

#include <algorithm>

#include "base/index.hpp"
#include "base/shape.hpp"

namespace ztrain::program {
namespace {

using Turns = std::vector<Turn>;

Turn later(const Turn& turn, int micros) {
  return {turn.kind, turn.chunk, turn.micro + micros};
}

/// Turns [begin, end) of which each is the one `length` before it, `stride` micro-batches later.
struct PeriodicRun {
  int begin = 0, end = 0;
};

PeriodicRun longest_run(const Turns& turns, int length, int stride) {
  PeriodicRun best;
  int begin = 0;
  for (int i = 0; i + length < std::ssize(turns); ++i) {
    if (turns[at(i + length)] != later(turns[at(i)], stride)) begin = i + 1;
    if (i + length + 1 - begin > best.end - best.begin && i >= begin) best = {begin, i + length + 1};
  }
  return best;
}

/// Micro-batches that are begun before a turn and not done there.
int under_way(const Turns& turns, int turn) {
  struct Count {
    int all = 0, done = 0;
  };
  std::vector<Count> counts;  // by micro-batch
  for (int i = 0; i < std::ssize(turns); ++i) {
    counts.resize(std::max(counts.size(), at(turns[at(i)].micro + 1)));
    Count& count = counts[at(turns[at(i)].micro)];
    ++count.all;
    count.done += i < turn ? 1 : 0;
  }
  return static_cast<int>(std::ranges::count_if(
      counts, [](const Count& count) { return count.done > 0 && count.done < count.all; }));
}

/// A step of so many micro-batches beside one of `few`.
class Trial {
 public:
  Trial(const Schedule& schedule, int ranks, int micro_batches, int ahead)
      : schedule_(schedule), ranks_(ranks), ahead_(ahead) {
    for (int rank = 0; rank < ranks; ++rank) whole_.push_back(turns(micro_batches, rank));
    whole_micros_ = micro_batches;
  }

  /// Whether that of one rank alone repeats so.
  bool repeats(int stride) const { return of(whole_micros_ - stride, stride, 1).has_value(); }

  std::optional<Middle> of_all(int few, int stride) const { return of(few, stride, ranks_); }

 private:
  Turns turns(int micro_batches, int rank) const {
    return schedule_.turns(
        {.micro_batches = micro_batches, .ranks = ranks_, .rank = rank, .chunks = schedule_.chunks});
  }

  std::optional<Middle> of(int few, int stride, int ranks) const {
    Middle middle{few, stride, (whole_micros_ - few) / stride + 1, 0, {}};
    std::vector<Turns> lists;
    std::vector<PeriodicRun> runs;
    for (int rank = 0; rank < ranks; ++rank) {
      lists.push_back(turns(few, rank));
      const auto more = static_cast<int>(whole_[at(rank)].size() - lists.back().size());
      const int length = more / (middle.times - 1);
      if (length == 0 || more % (middle.times - 1) != 0) return std::nullopt;
      runs.push_back(longest_run(lists.back(), length, stride));
      if (runs.back().end - runs.back().begin < 2 * length) return std::nullopt;
      middle.bodies.push_back({runs.back().begin, length});
      middle.alike = std::max(middle.alike, alike(lists.back(), middle.bodies.back(), stride));
    }
    const int first = first_of(middle, lists);
    for (int rank = 0; rank < ranks; ++rank)
      if (!place(middle, rank, lists[at(rank)], runs[at(rank)], first)) return std::nullopt;
    return middle;
  }

  /// What is under way at any time of the body was begun so many times before it; messages are begun earlier,
  /// and known to be received later.
  int alike(const Turns& turns, const Middle::Body& run, int stride) const {
    const int open = under_way(turns, std::min(run.begin + run.length, static_cast<int>(turns.size())));
    if (ranks_ == 1 && open == 0) return 0;
    return static_cast<int>(ceil_div(open, stride)) + static_cast<int>(ceil_div(ahead_, run.length)) + 1;
  }

  /// So many times at the beginning of a rank's differ: gradients are set, and not added to. Where halves for
  /// weights come late, ranks begin to repeat after each other, and how long a message is known to be under
  /// way settles only when all do.
  int first_of(const Middle& middle, const std::vector<Turns>& lists) const {
    if (middle.alike == 0) return 2;
    const auto late = [&](std::size_t rank) {
      const Middle::Body& body = middle.bodies[rank];
      return std::any_of(lists[rank].begin() + body.begin, lists[rank].begin() + body.end(),
                         [](const Turn& turn) { return turn.kind == TurnKind::backward_weights; });
    };
    for (std::size_t rank = 0; rank < lists.size(); ++rank)
      if (late(rank)) return ranks_;
    return 1;
  }

  /// The last time is not the copy's, so that what is done ahead for the next is done in the copy too. The
  /// body is as late as that lets it be: what is begun behind it has no slot in a rota.
  bool place(Middle& middle, int rank, const Turns& few, const PeriodicRun& run, int first) const {
    Middle::Body& body = middle.bodies[at(rank)];
    body.begin = std::max(0, run.end - 3 * body.length);
    while (body.begin > 0 && few[at(body.begin)].kind != TurnKind::forward) --body.begin;
    if (body.begin < run.begin + (first + middle.alike) * body.length) return false;
    Turns all(few.begin(), few.begin() + body.begin);
    for (int time = 0; time < middle.times; ++time)
      for (int i = body.begin; i < body.end(); ++i) all.push_back(later(few[at(i)], time * middle.stride));
    for (int i = body.end(); i < std::ssize(few); ++i) all.push_back(later(few[at(i)], middle.shift()));
    return all == whole_[at(rank)];
  }

  const Schedule& schedule_;
  int ranks_, ahead_, whole_micros_ = 0;
  std::vector<Turns> whole_;  ///< by rank
};

}  // namespace

std::optional<Middle> middle_of(const Schedule& schedule, int ranks, int micro_batches, int ahead) {
  if (schedule.micro_batches != 0 || micro_batches < 6) return std::nullopt;
  const Trial trial(schedule, ranks, micro_batches, ahead);
  for (int stride = 1; stride <= ranks && 2 * stride < micro_batches; ++stride) {
    if (!trial.repeats(stride)) continue;
    for (int few = micro_batches % stride + stride; few < micro_batches; few += stride)
      if (auto middle = trial.of_all(few, stride)) return middle;
    return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace ztrain::program
