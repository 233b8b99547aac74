#pragma once
// A rule, its types and its states, joined into a step over pieces: on a CPU piece by piece in blocks, on a
// GPU in one launch over the quanta of all. Included by kernel sources only.

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/launch/device_array.hpp"
#include "kernels/launch/threads.hpp"
#include "kernels/optimizer/optimizer_quanta.hpp"
#include "kernels/optimizer/optimizer_step.hpp"

namespace ztrain::kernels {

/// A legal combination: parameter, what is stepped (the same type: no separate master), gradient.
template <class Parameter, class Stepped, class Gradient>
struct OptimizerTypesOf {
  using P = Parameter;
  using W = Stepped;
  using G = Gradient;
  static constexpr bool master = !std::is_same_v<P, W>;
};

/// A rule whose states are stored as codes.
template <class Rule>
concept Coded = requires {
  typename Rule::Codecs;
};

/// no_states arrays of M, an item per element.
template <class M, std::size_t no_states>
struct ElementStates {
  using Tables = CodeTables<void>;
  M* data[no_states > 0 ? no_states : 1];

  explicit ElementStates([[maybe_unused]] const std::vector<std::byte*>& states) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      ((data[I] = reinterpret_cast<M*>(states[I])), ...);
    }
    (std::make_index_sequence<no_states>{});
  }

  template <class Rule, class Round, class P, class W, class G, class C>
  KOKKOS_INLINE_FUNCTION void step(const C& c, Round round, std::int64_t at, std::int64_t n,
                                   const BlockArrays<P, W, G>& arrays) const {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      step_elements<Rule, Round, P, W, G>(c, round, n, arrays.copy, arrays.stepped, arrays.gradient,
                                          (data[I] + at)...);
    }
    (std::make_index_sequence<no_states>{});
  }

  template <class Rule, class Threads, class Round, class P, class W, class G, class C>
  KOKKOS_INLINE_FUNCTION void step_part(const Threads&, const Tables&, const C& c, Round round, bool whole,
                                        const LanePart& part, const BlockArrays<P, W, G>& arrays) const {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      step_lane<Rule>(c, round, whole, part.n, arrays, (data[I] + part.at)...);
    }
    (std::make_index_sequence<no_states>{});
  }

  bool on_words() const {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return (kernels::on_words(data[I]) && ...);
    }
    (std::make_index_sequence<no_states>{});
  }
};

/// Codes and scales, by turns.
template <class Codecs>
struct CodedStates {
  using Tables = CodeTables<Codecs>;
  static constexpr std::size_t no_states = std::tuple_size_v<Codecs>;
  CodedBlock data[no_states];

  explicit CodedStates(const std::vector<std::byte*>& states) {
    for (std::size_t s = 0; s < no_states; ++s)
      data[s] = {reinterpret_cast<std::uint8_t*>(states[2 * s]), reinterpret_cast<float*>(states[2 * s + 1])};
  }

  template <class Rule, class Round, class P, class W, class G, class C>
  KOKKOS_INLINE_FUNCTION void step(const C& c, Round round, std::int64_t at, std::int64_t n,
                                   const BlockArrays<P, W, G>& arrays) const {
    CodedBlock blocks[no_states];
    for (std::size_t s = 0; s < no_states; ++s)
      blocks[s] = {data[s].codes + at, data[s].absmax + at / quantum};
    step_coded<Rule, Round, P, W, G>(c, round, n, arrays, blocks, std::make_index_sequence<no_states>{});
  }

  template <class Rule, class Threads, class Round, class P, class W, class G, class C>
  KOKKOS_INLINE_FUNCTION void step_part(const Threads& threads, const Tables& tables, const C& c, Round round,
                                        bool whole, const LanePart& part,
                                        const BlockArrays<P, W, G>& arrays) const {
    CodedBlock blocks[no_states];
    for (std::size_t s = 0; s < no_states; ++s)
      blocks[s] = {data[s].codes + part.at, data[s].absmax + part.at / quantum};
    step_coded_lane<Rule>(threads, tables, c, round, whole, part.n, arrays, blocks,
                          std::make_index_sequence<no_states>{});
  }

  bool on_words() const {
    for (const CodedBlock& state : data)
      if (reinterpret_cast<std::uintptr_t>(state.codes) % alignof(LaneCodes) != 0) return false;
    return true;
  }
};

template <class Rule>
struct UncodedOf {
  using type = Rule;
};
template <Coded Rule>
struct UncodedOf<Rule> {
  using type = typename Rule::Uncoded;
};

/// What a step reads and writes, from the arrays' first elements.
template <class Rule, class Types, class StatesOf>
struct StepData {
  using T = Types;
  using States = StatesOf;
  using Arrays = BlockArrays<typename T::P, typename T::W, typename T::G>;
  using Coefficients = typename UncodedOf<Rule>::type::template Coefficients<acc_t<typename T::W>>;
  /// Whether what is stepped may be rounded by random bits.
  static constexpr bool may_draw = std::is_same_v<typename T::W, bf16>;

  Arrays arrays;
  States states;
  optim::Settings settings;
  Rounding rounding;

  KOKKOS_INLINE_FUNCTION Arrays arrays_at(std::int64_t at) const {
    Arrays moved = arrays;
    moved.stepped += at;
    moved.gradient += at;
    if constexpr (T::master) moved.copy += at;
    return moved;
  }
  KOKKOS_INLINE_FUNCTION Coefficients coefficients(const StepScalars& scalars,
                                                   const OptimizerPiece& piece) const {
    return Coefficients(scalars, settings, optim::Group{piece.lr_scale, piece.weight_decay});
  }
  KOKKOS_INLINE_FUNCTION RandomStream stream(const StepScalars& scalars, const OptimizerPiece& piece) const {
    return RandomStream::of_step(rounding.seed, piece.stream, scalars.optimizer_step);
  }
};

/// A block of one piece by one thread of a CPU.
template <class Rule, class Data>
struct StepBlock {
  Data data;
  OptimizerPiece piece;
  const StepScalars* scalars;

  void operator()(std::int64_t first, std::int64_t n) const {
    if (scalars->found_inf != 0) return;  // the old state stays
    const auto c = data.coefficients(*scalars, piece);
    const std::int64_t at = piece.begin + first;
    const auto block = data.arrays_at(at);
    if constexpr (Data::may_draw) {
      if (data.rounding.stochastic) {
        std::uint32_t bits[quantum];
        draw_for(data.stream(*scalars, piece), piece, first, n, bits);
        data.states.template step<Rule>(c, RoundStochastic{bits}, at, n, block);
        return;
      }
    }
    data.states.template step<Rule>(c, RoundNearest{}, at, n, block);
  }
};

/// Quanta of all pieces by the lanes of a warp.
template <class Rule, class Data>
struct StepQuanta {
  using Tables = typename Data::States::Tables;
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
        data.states.template step_part<Rule>(threads, tables, c, RoundStochastic{bits}, whole, part, arrays);
        return;
      }
    }
    data.states.template step_part<Rule>(threads, tables, c, RoundNearest{}, whole, part, arrays);
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

/// Blocks of one piece after the other.
template <class Rule, class Data>
class PiecesOnCpu {
 public:
  PiecesOnCpu(const Data& data, std::vector<OptimizerPiece> pieces)
      : data_(data), pieces_(std::move(pieces)) {}

  void run(Exec& exec, const StepScalars* scalars) const {
    for (const OptimizerPiece& piece : pieces_)
      for_blocks(exec, piece.count, StepBlock<Rule, Data>{data_, piece, scalars});
  }

 private:
  Data data_;
  std::vector<OptimizerPiece> pieces_;
};

/// Consecutive quanta by each warp of a team. The tables of codes are first copied to where all threads of
/// the team read them fast.
template <class Rule, class Data>
struct StepTeam {
  using Tables = typename Data::States::Tables;
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
class PiecesOnGpu {
 public:
  PiecesOnGpu(const Data& data, std::vector<OptimizerPiece> pieces) : data_(data) {
    std::erase_if(pieces, [](const OptimizerPiece& piece) { return piece.count == 0; });
    const std::vector<std::int64_t> first = first_quanta(pieces);
    quanta_ = first.back();
    pieces_ = DeviceArray<OptimizerPiece>(pieces);
    first_ = DeviceArray<std::int64_t>(first);
    if constexpr (!std::is_empty_v<Tables>) tables_ = DeviceArray<Tables>({Tables{}});
    count_ = static_cast<std::int64_t>(pieces.size());
    const auto& a = data.arrays;
    on_words_ = on_words(a.copy) && on_words(a.stepped) && on_words(a.gradient) && data.states.on_words();
  }

  void run(Exec& exec, const StepScalars* scalars) const {
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
  using Tables = typename Data::States::Tables;
  DeviceArray<OptimizerPiece> pieces_;
  DeviceArray<std::int64_t> first_;
  DeviceArray<Tables> tables_;
  Data data_;
  std::int64_t count_ = 0, quanta_ = 0;
  bool on_words_ = false;
};

/// Prepared: addresses are set once.
template <class Rule, class T, class States>
class StepOf final : public OptimizerStep {
 public:
  StepOf(const optim::Settings& settings, const OptimizerArrays& arrays, std::vector<OptimizerPiece> pieces,
         Rounding rounding)
      : pieces_(Data{typed(arrays), States(arrays.states), settings, rounding}, std::move(pieces)) {}

  void run(Exec& exec, const StepScalars* scalars) override {
    static_assert(carried<StepTeam<Rule, Data>>);
    pieces_.run(exec, scalars);
  }

 private:
  using Data = StepData<Rule, T, States>;

  static typename Data::Arrays typed(const OptimizerArrays& arrays) {
    using P = typename T::P;
    using W = typename T::W;
    return {T::master ? reinterpret_cast<P*>(arrays.parameter) : nullptr,
            reinterpret_cast<W*>(T::master ? arrays.master : arrays.parameter),
            reinterpret_cast<const typename T::G*>(arrays.gradient)};
  }

  std::conditional_t<on_gpu, PiecesOnGpu<Rule, Data>, PiecesOnCpu<Rule, Data>> pieces_;
};

}  // namespace ztrain::kernels
