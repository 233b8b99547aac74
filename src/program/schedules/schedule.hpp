#pragma once
// In which order a rank does the forwards and backwards of a step. A schedule is a pure function from the
// number of micro-batches, and the rank's place in the pipeline, to a list of turns; expand() follows the
// list and nothing else. A new schedule is a function and a row of the table in schedule.cpp. If a second
// function states what repeats in the list, that is compiled once (program/schedules/middle.hpp).

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/schedules/stage_map.hpp"

namespace ztrain::program {

enum class TurnKind : std::uint8_t {
  forward,
  backward,         ///< both halves, block by block
  backward_inputs,  ///< gradients of activations, and of parameters where one op gives both
  /// What is left: gradients of parameters, for which no other rank waits (Qi et al., "Zero Bubble Pipeline
  /// Parallelism", 2023).
  backward_weights
};

/// One entry of the list. A chunk: consecutive blocks of what the rank has of the model.
struct Turn {
  TurnKind kind = TurnKind::forward;
  int chunk = 0;
  int micro = 0;
  bool operator==(const Turn&) const = default;
};

struct ScheduleInput {
  int micro_batches = 1;
  int ranks = 1;  ///< of the pipeline
  int rank = 0;
  int chunks = 1;  ///< of every rank
};

/// Turns [begin, end) of a rank. Each of them is the one `length` turns before it, `stride` micro-batches
/// later. Turns before them are the warm-up, and turns behind them the cool-down.
struct SteadyState {
  int begin = 0, end = 0;
  int length = 0;         ///< turns of one iteration
  int stride = 1;         ///< micro-batches of one iteration
  int in_flight = 0;      ///< micro-batches that are begun and not done behind the first iteration
  bool has_late = false;  ///< an iteration has halves for weights
};

struct Schedule {
  std::string name;
  std::function<std::vector<Turn>(const ScheduleInput&)> turns;
  int chunks = 1;         ///< of every rank
  bool vee = false;       ///< StageMap::vee
  int ranks = 0;          ///< that it is for; 0: any number
  int micro_batches = 0;  ///< likewise
  /// States what repeats in the turns. Null: nothing does.
  std::function<SteadyState(const ScheduleInput&)> steady{};
};

StageMap stage_map(const Schedule& schedule, int ranks);

/// Throws Error that names the schedules there are.
Schedule find_schedule(std::string_view name);

/// What messages call the chunks of a rank: by their numbers, or as the stages of the model that they are.
struct ChunkNames {
  std::optional<StageMap> map{};
  int rank = 0;

  /// "stage 5"
  std::string of(int chunk) const;
};

/// Why a list is not a step: "" where it is. Each chunk of each micro-batch goes forward once and, behind
/// that, backward once, whole or in its two halves; chunks go forward ascending and backward descending; a
/// chunk's halves for weights are in the order of its halves for inputs, since they add to the same
/// gradients.
std::string fault_of(const std::vector<Turn>& turns, int chunks, int micro_batches,
                     const ChunkNames& names = {});

/// "backward of chunk 1, micro-batch 3"
std::string describe(const Turn& turn, const ChunkNames& names = {});

}  // namespace ztrain::program
