#include "program/schedules/schedule.hpp"

#include <fmt/format.h>

#include <array>
#include <map>
#include <utility>

#include "base/error.hpp"

namespace ztrain::program {

// Each kind of schedules has a file.
using TurnsOf = std::vector<Turn>(const ScheduleInput&);
TurnsOf gpipe, one_forward_one_backward, zero_bubble_h1, zero_bubble_h2, interleaved, zero_bubble_vee,
    dualpipe_vee, vee_half, vee_min;
using SteadyOf = SteadyState(const ScheduleInput&);
SteadyOf steady_1f1b, steady_h1, steady_h2, steady_interleaved, steady_zero_bubble_vee, steady_dualpipe_vee,
    steady_vee_half, steady_vee_min;

namespace {

constexpr std::array<std::string_view, 4> kind_names{"forward", "backward", "backward for inputs",
                                                     "backward for weights"};

/// One micro-batch after the other: gradient accumulation on a rank that has the whole model.
std::vector<Turn> sequential(const ScheduleInput& input) {
  ASSERT(input.ranks == 1, "the schedule 'sequential' is for one stage, not for {}", input.ranks);
  std::vector<Turn> turns;
  for (int m = 0; m < input.micro_batches; ++m) {
    turns.push_back({TurnKind::forward, 0, m});
    turns.push_back({TurnKind::backward, 0, m});
  }
  return turns;
}

SteadyState steady_sequential(const ScheduleInput& input) {
  return {.begin = 0, .end = 2 * input.micro_batches, .length = 2};
}

struct Row {
  std::string_view name;
  TurnsOf* turns;
  SteadyOf* steady = nullptr;
  int chunks = 1;
  bool vee = false;
};
constexpr Row table[] = {
    {.name = "sequential", .turns = sequential, .steady = steady_sequential},
    {.name = "gpipe", .turns = gpipe},
    {.name = "1f1b", .turns = one_forward_one_backward, .steady = steady_1f1b},
    {.name = "interleaved", .turns = interleaved, .steady = steady_interleaved, .chunks = 2},
    {.name = "zb-h1", .turns = zero_bubble_h1, .steady = steady_h1},
    {.name = "zb-h2", .turns = zero_bubble_h2, .steady = steady_h2},
    {.name = "zb-v", .turns = zero_bubble_vee, .steady = steady_zero_bubble_vee, .chunks = 2, .vee = true},
    {.name = "v-half", .turns = vee_half, .steady = steady_vee_half, .chunks = 2, .vee = true},
    {.name = "v-min", .turns = vee_min, .steady = steady_vee_min, .chunks = 2, .vee = true},
    {.name = "dualpipe-v", .turns = dualpipe_vee, .steady = steady_dualpipe_vee, .chunks = 2, .vee = true},
};

/// How far the chunks of a step have come, turn by turn.
class Progress {
 public:
  Progress(int chunks, int micro_batches, const ChunkNames& names)
      : chunks_(chunks), micro_batches_(micro_batches), names_(names) {}

  std::string take(const Turn& turn) {
    const auto [kind, chunk, micro] = turn;
    if (chunk < 0 || chunk >= chunks_ || micro < 0 || micro >= micro_batches_)
      return told(turn) + " is of no chunk or of no micro-batch of the step";
    const bool forward = kind == TurnKind::forward, weights = kind == TurnKind::backward_weights;
    const Stage before = forward ? Stage::none : weights ? Stage::half : Stage::forward;
    if (stage(chunk, micro) != before) return told(turn) + " comes too early, or a second time";
    if (forward && chunk > 0 && stage(chunk - 1, micro) == Stage::none)
      return told(turn) + " comes before that of the " + word() + " it continues";
    if (!forward && !weights && chunk + 1 < chunks_ && stage(chunk + 1, micro) < Stage::half)
      return told(turn) + " comes before that of the " + word() + " it continues";
    if (kind == TurnKind::backward && weights_done_[chunk] < halves_[chunk].size())
      return told(turn) + " overtakes another micro-batch's half for weights";
    if (kind == TurnKind::backward_inputs) halves_[chunk].push_back(micro);
    if (weights && halves_[chunk].at(weights_done_[chunk]++) != micro)
      return told(turn) + " overtakes another micro-batch's";
    stages_[{chunk, micro}] = forward                             ? Stage::forward
                              : kind == TurnKind::backward_inputs ? Stage::half
                                                                  : Stage::done;
    return "";
  }

  std::string missing() const {
    for (int chunk = 0; chunk < chunks_; ++chunk)
      for (int micro = 0; micro < micro_batches_; ++micro)
        if (stage(chunk, micro) != Stage::done)
          return fmt::format("{} of micro-batch {} is not done at the end", names_.of(chunk), micro);
    return "";
  }

 private:
  enum class Stage : std::uint8_t { none, forward, half, done };

  std::string told(const Turn& turn) const { return describe(turn, names_); }
  std::string word() const { return names_.map ? "stage" : "chunk"; }

  Stage stage(int chunk, int micro) const {
    const auto found = stages_.find({chunk, micro});
    return found == stages_.end() ? Stage::none : found->second;
  }

  int chunks_, micro_batches_;
  const ChunkNames& names_;
  std::map<std::pair<int, int>, Stage> stages_;
  std::map<int, std::vector<int>> halves_;  ///< by chunk: micro-batches whose half for inputs is done
  std::map<int, std::size_t> weights_done_;
};

}  // namespace

StageMap stage_map(const Schedule& schedule, int ranks) {
  return {ranks, schedule.chunks, schedule.vee};
}

Schedule find_schedule(std::string_view name) {
  std::string names;
  for (const Row& row : table) {
    if (row.name == name) return {std::string(row.name), row.turns, row.chunks, row.vee, 0, 0, row.steady};
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", row.name);
  }
  fail("there is no schedule '{}'; there is {}", name, names);
}

std::string ChunkNames::of(int chunk) const {
  return map ? fmt::format("stage {}", map->stage_of(rank, chunk)) : fmt::format("chunk {}", chunk);
}

std::string fault_of(const std::vector<Turn>& turns, int chunks, int micro_batches, const ChunkNames& names) {
  Progress progress(chunks, micro_batches, names);
  for (const Turn& turn : turns)
    if (std::string fault = progress.take(turn); !fault.empty()) return fault;
  return progress.missing();
}

std::string describe(const Turn& turn, const ChunkNames& names) {
  return fmt::format("{} of {}, micro-batch {}", kind_names[static_cast<std::size_t>(turn.kind)],
                     names.of(turn.chunk), turn.micro);
}

}  // namespace ztrain::program
