#include "job/held_pieces.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.hpp"
#include "base/shape.hpp"

namespace ztrain::job {
namespace {

/// One tensor of a unit's state.
struct HeldState {
  std::string name;  ///< "weights"
  program::TensorId tensor = program::no_tensor;
  std::int64_t granule = 1;
  WeightForm form{};          ///< of weights in 4 or 8 bits
  bool of_each_copy = false;  ///< as in optim::StateInfo

  /// Bytes that stand for so many elements, whole granules or up to the end of a parameter.
  std::int64_t bytes(std::int64_t elements, std::int64_t item) const {
    return form.any() ? form.bytes(elements) : ceil_div(elements, granule) * item;
  }
};

std::vector<HeldState> states_of(const program::UnitState& unit, const WeightForm& form) {
  std::vector<HeldState> states{
      {form.any() ? "codes of weights" : "weights", unit.parameters.whole, 1, form}};
  if (unit.computed.whole != unit.parameters.whole)
    states.push_back({"8-bit codes of weights", unit.computed.whole});
  if (unit.separate_master) states.push_back({"master weights", unit.master.whole});
  for (std::size_t i = 0; i < unit.optimizer.size(); ++i)
    states.push_back({unit.states[i].name,
                      unit.optimizer[i].whole,
                      unit.states[i].granule,
                      {},
                      unit.states[i].of_each_copy});
  return states;
}

/// How the unit's parameters are kept, which are all alike.
WeightForm form_of(const program::Job& job, const FlatUnit& unit) {
  return job.graph.units[at(unit.unit)].form;
}

/// The same of memory of each kind: block by block, each from the hash of those before.
std::uint64_t hash_of(const memory::Provider& memory, const std::byte* data, std::int64_t bytes,
                      std::vector<std::byte>& copy) {
  constexpr std::int64_t block = std::int64_t{4} << 20;
  std::uint64_t hash = 0;
  for (std::int64_t begin = 0; begin < bytes; begin += block) {
    const std::int64_t length = std::min(block, bytes - begin);
    const std::byte* from = data + begin;
    if (!memory.host_accessible()) {
      copy.resize(at(length));
      memory.read(copy.data(), from, length);
      from = copy.data();
    }
    hash = hash_bytes(from, at(length), hash);
  }
  return hash;
}

/// Returns "elements 0 to 63", and for a parameter that is sliced which part they are of.
std::string place_of_piece(const ParameterShape& parameter, const Piece& piece, const Coordinate& here) {
  const TensorSlice& slice = parameter.slice;
  const std::string part =
      slice.whole() ? "" : fmt::format(" of {} part {}", to_string(slice.axes), part_of(slice, here));
  return fmt::format("elements {} to {}{}", piece.slice_begin, piece.slice_begin + piece.count - 1, part);
}

AxisSet copied_over(const FlatUnit& unit, const ParameterShape& parameter, bool whole) {
  const AxisSet axes = ztrain::copied_over(whole ? AxisSet() : unit.shard_axes, parameter.slice);
  return parameter.other_rank >= 0 ? axes | Axis::pipeline : axes;
}

}  // namespace

std::vector<HeldPiece> held_pieces(const Worker& worker) {
  worker.device().finish();
  const program::Job& job = worker.job();
  const program::Program& program = job.load();
  const Coordinate here(program.mesh, program.rank);
  std::vector<HeldPiece> pieces;
  std::vector<std::byte> copy;
  for (const FlatUnit& unit : job.layout.units()) {
    const WeightForm form = form_of(job, unit);
    for (const HeldState& state : states_of(job.tensors.units[at(unit.unit)], form)) {
      const program::Tensor& tensor = program.tensor(state.tensor);
      const std::int64_t item = size_of(tensor.dtype);
      const bool whole = tensor.bytes() == state.bytes(unit.elements(), item);
      const std::int64_t begin = whole ? 0 : unit.shard_begin(here);
      const std::int64_t end = whole ? unit.elements() : begin + unit.shard_elements;
      const memory::Provider& memory = worker.memory().provider(tensor.tier);
      const std::byte* const data = worker.memory().address(program, state.tensor);
      for (const Piece& piece : job.layout.pieces(unit.unit, begin, end)) {
        const ParameterShape& parameter = job.layout.parameters()[at(piece.parameter)];
        pieces.push_back(
            {fmt::format("{} of {}, {}", state.name, parameter.name, place_of_piece(parameter, piece, here)),
             copied_over(unit, parameter, whole).without(state.of_each_copy ? token_axes : AxisSet()),
             hash_of(memory, data + state.bytes(piece.flat_begin - begin, item),
                     state.bytes(piece.count, item), copy)});
      }
    }
  }
  return pieces;
}

std::uint64_t hash_of_copy(const Worker& worker) {
  const program::Program& program = worker.job().load();
  std::uint64_t hash = 0;
  for (const program::UnitState& unit : worker.job().tensors.units)
    for (const auto& [state, copy] : unit.snapshot)
      hash = hash_bytes(worker.memory().address(program, copy), at(program.tensor(copy).bytes()), hash);
  return hash;
}

}  // namespace ztrain::job
