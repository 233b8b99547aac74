#pragma once
// A rule, its types and its states, joined into one launch over the quanta of all pieces on a GPU. Included
// by kernel sources only.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/launch/device_array.hpp"
#include "kernels/launch/threads.hpp"
#include "kernels/optimizer/optimizer_quanta.hpp"
#include "kernels/optimizer/optimizer_step.hpp"

namespace ztrain::kernels {

template <class Rule, class Threads, class Round, class P, class W, class G, class C, class M,
          std::size_t no_states>
KOKKOS_INLINE_FUNCTION void step_part(const Threads&, const CodeTables<void>&, const C& c, Round round,
                                      bool whole, const LanePart& part, const BlockArrays<P, W, G>& arrays,
                                      const ElementStates<M, no_states>& states) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    step_lane<Rule>(c, round, whole, part.n, arrays, (states.data[I] + part.at)...);
  }
  (std::make_index_sequence<no_states>{});
}

template <class Rule, class Threads, class Round, class P, class W, class G, class C, class Codecs>
KOKKOS_INLINE_FUNCTION void step_part(const Threads& threads, const CodeTables<Codecs>& tables, const C& c,
                                      Round round, bool whole, const LanePart& part,
                                      const BlockArrays<P, W, G>& arrays, const CodedStates<Codecs>& states) {
  constexpr std::size_t no_states = CodedStates<Codecs>::no_states;
  CodedBlock blocks[no_states];
  for (std::size_t s = 0; s < no_states; ++s)
    blocks[s] = {states.data[s].codes + part.at, states.data[s].absmax + part.at / quantum};
  step_coded_lane<Rule>(threads, tables, c, round, whole, part.n, arrays, blocks,
                        std::make_index_sequence<no_states>{});
}

template <class M, std::size_t no_states>
bool are_on_words(const ElementStates<M, no_states>& states) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return (on_words(states.data[I]) && ...);
  }
  (std::make_index_sequence<no_states>{});
}

template <class Codecs>
bool are_on_words(const CodedStates<Codecs>& states) {
  for (const CodedBlock& state : states.data)
    if (reinterpret_cast<std::uintptr_t>(state.codes) % alignof(LaneCodes) != 0) return false;
  return true;
}

/// Quanta of all pieces by the lanes of a warp.
template <class Rule, class Data>
struct StepQuanta {
  using Tables = TablesOf<typename Data::States>;
  Data data;
  PieceTable table;
  bool on_words;  ///< packs of the arrays lie on multiples of 16 bytes

  template <class Threads>
  KOKKOS_INLINE_FUNCTION void quantum_of(const Threads& threads, const Tables& tables,
                                         const typename Data::Coefficients& c, const StepScalars& scalars,
                                         const OptimizerPiece& piece, std::int64_t first) const {
    const LanePart part = part_of(threads, piece, first);
    const bool whole = on_words && part.n == pack;
    const auto arrays = data.arrays_at(part.at);
    if constexpr (Data::may_draw) {
      if (data.rounding.stochastic) {
        std::uint32_t bits[pack];
        draw_part(data.stream(scalars, piece), piece, part, bits);
        step_part<Rule>(threads, tables, c, RoundStochastic{bits}, whole, part, arrays, data.states);
        return;
      }
    }
    step_part<Rule>(threads, tables, c, RoundNearest{}, whole, part, arrays, data.states);
  }

  /// Quanta [begin, end) of the step's.
  template <class Threads>
  KOKKOS_INLINE_FUNCTION void run(const Threads& threads, const Tables& tables, const StepScalars& scalars,
                                  std::int64_t begin, std::int64_t end) const {
    if (scalars.found_inf != 0 || begin >= end) return;  // the old state stays
    std::int64_t index = table.piece_of(begin);
    while (begin < end) {
      const OptimizerPiece piece = table.pieces[index];
      const auto c = data.coefficients(scalars, piece);
      const std::int64_t first = table.first[index], next = table.first[index + 1];
      for (; begin < end && begin < next; ++begin)
        quantum_of(threads, tables, c, scalars, piece, (begin - first) * quantum);
      ++index;
    }
  }
};

/// Consecutive quanta by each warp of a team. The tables of codes are first copied to where all threads of
/// the team read them fast.
template <class Rule, class Data>
struct StepTeam {
  using Tables = TablesOf<typename Data::States>;
  StepQuanta<Rule, Data> step;
  const Tables* tables;
  const StepScalars* scalars;
  std::int64_t quanta, per_warp;

  KOKKOS_INLINE_FUNCTION void operator()(const ThreadsTeam& team) const {
    const LaneThreads threads(team, warp_lanes);
    const std::int64_t begin =
        (static_cast<std::int64_t>(team.league_rank()) * team.team_size() + team.team_rank()) * per_warp;
    const std::int64_t end = begin + per_warp < quanta ? begin + per_warp : quanta;
    if constexpr (std::is_empty_v<Tables>) {
      step.run(threads, Tables{}, *scalars, begin, end);
    } else {
      auto* const copy = static_cast<Tables*>(team.team_scratch(0).get_shmem_aligned(sizeof(Tables), 16));
      const auto* const from = reinterpret_cast<const std::uint32_t*>(tables);
      auto* const to = reinterpret_cast<std::uint32_t*>(copy);
      const int words = static_cast<int>(sizeof(Tables) / sizeof(std::uint32_t));
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, words), [&](const int i) { to[i] = from[i]; });
      team.team_barrier();
      step.run(threads, *copy, *scalars, begin, end);
    }
  }
};

/// The pieces in the memory of a GPU, where they are put once.
template <class Rule, class Data>
class StepOnGpu final : public OptimizerStep {
 public:
  StepOnGpu(const Data& data, std::vector<OptimizerPiece> pieces) : data_(data) {
    std::erase_if(pieces, [](const OptimizerPiece& piece) { return piece.count == 0; });
    const std::vector<std::int64_t> first = first_blocks(pieces);
    quanta_ = first.back();
    pieces_ = DeviceArray<OptimizerPiece>(pieces);
    first_ = DeviceArray<std::int64_t>(first);
    if constexpr (!std::is_empty_v<Tables>) tables_ = DeviceArray<Tables>({Tables{}});
    count_ = static_cast<std::int64_t>(pieces.size());
    const auto& a = data.arrays;
    on_words_ = on_words(a.copy) && on_words(a.stepped) && on_words(a.gradient) && are_on_words(data.states);
  }

  void run(Exec& exec, const StepScalars* scalars) override {
    constexpr int warps = 8;
    constexpr std::size_t scratch = std::is_empty_v<Tables> ? 0 : sizeof(Tables) + 64;
    const std::int64_t per_warp = quanta_ < 1 << 15 ? 1 : 4;  // a few thousand warps fill a GPU
    for_teams<2, warps * warp_lanes>(
        exec, ceil_div(quanta_, warps * per_warp), warps, warp_lanes, scratch,
        StepTeam<Rule, Data>{{data_, {pieces_.data(), first_.data(), count_}, on_words_},
                             tables_.data(),
                             scalars,
                             quanta_,
                             per_warp});
  }

 private:
  using Tables = TablesOf<typename Data::States>;
  DeviceArray<OptimizerPiece> pieces_;
  DeviceArray<std::int64_t> first_;
  DeviceArray<Tables> tables_;
  Data data_;
  std::int64_t count_ = 0, quanta_ = 0;
  bool on_words_ = false;
};

}  // namespace ztrain::kernels
