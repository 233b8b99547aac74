#include "job/weights.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/shape.hpp"
#include "config/adapters.hpp"
#include "kernel_interface/with_type.hpp"
#include "kernels/elementwise/copies.hpp"
#include "kernels/elementwise/init.hpp"
#include "memory/arena.hpp"

namespace ztrain::job {
namespace {

using program::Program;

/// to: where the piece that starts at slice_begin lies.
template <class P>
void draw(const model::Parameter& parameter, const std::vector<LogicalRun>& runs, std::int64_t slice_begin,
          std::byte* to, kernels::Exec& exec, std::uint64_t seed) {
  P* data = reinterpret_cast<P*>(to);
  const std::uint64_t stream = hash_text(parameter.name);
  for (const LogicalRun& run : runs) {
    const Vector<P> destination{data + (run.slice_begin - slice_begin), run.count};
    switch (parameter.init) {
      case model::Init::normal:
        kernels::normal_init<P>(exec, destination, seed, stream,
                                static_cast<std::uint64_t>(run.logical_begin), parameter.init_std);
        break;
      case model::Init::uniform:
        kernels::uniform_init<P>(exec, destination, seed, stream,
                                 static_cast<std::uint64_t>(run.logical_begin), parameter.init_std);
        break;
      case model::Init::constant:
        kernels::constant_init<P>(exec, destination, parameter.init_std);
        break;
      case model::Init::ones:
        kernels::constant_init<P>(exec, destination, 1);
        break;
      case model::Init::zeros:
        kernels::constant_init<P>(exec, destination, 0);
        break;
      case model::Init::row_norms:  // write_row_norms
        break;
    }
  }
}

/// Returns the norms of rows [first, first + count) of a weight that is rounded to a type.
std::vector<double> row_norms(const model::Graph& graph, const std::string& weight, std::int64_t first,
                              std::int64_t count, DType computed, const ReadElements& read) {
  const auto found = std::ranges::find(graph.parameters, weight, &model::Parameter::name);
  ASSERT(found != graph.parameters.end(), "no weight '{}' has rows whose norms are wanted", weight);
  const std::int64_t columns = found->shape.back(), end = (first + count) * columns;
  std::vector<double> norms(at(count));
  std::vector<float> values(at(std::min(quantized_window, count * columns)));
  for (std::int64_t begin = first * columns, n = 0; begin < end; begin += n) {
    n = std::min(quantized_window, end - begin);
    read(static_cast<int>(found - graph.parameters.begin()), begin, n, values.data());
    with_type(computed, [&]<class T>() {
      for (std::int64_t i = 0, row = begin / columns; i < n; ++row)
        for (const std::int64_t last = std::min(n, (row + 1) * columns - begin); i < last; ++i) {
          const auto value = static_cast<double>(static_cast<T>(values[at(i)]));
          norms[at(row - first)] += value * value;
        }
    });
  }
  for (double& norm : norms) norm = std::sqrt(norm);
  return norms;
}

/// Calls make with where a tensor's bytes are, or where no kernel reaches them, with a copy that goes back
/// there.
template <class Make>
void write_tensor(const Program& program, program::TensorId id, const engine::JobMemory& memory, Make make) {
  const program::Tensor& tensor = program.tensor(program.storage(id));
  std::byte* const address = memory.address(program, id);
  if (tensor.tier != program::Tier::nvme) return make(address);
  const std::int64_t bytes = program.tensor(id).bytes();
  const memory::Arena copy("copy of " + tensor.name, bytes);
  memory::Provider& nvme = memory.provider(tensor.tier);
  nvme.read(copy.at(0), address, bytes);
  make(copy.at(0));
  nvme.write(address, copy.at(0), bytes);
}

void zero_tensor(const Program& program, program::TensorId id, const engine::JobMemory& memory,
                 kernels::Exec& exec) {
  std::byte* const address = memory.address(program, id);
  const std::int64_t bytes = program.tensor(id).bytes();
  const program::Tier tier = program.tensor(program.storage(id)).tier;
  if (tier == program::Tier::nvme) return memory.provider(tier).fill(address, 0, bytes);
  kernels::zero(exec, address, bytes);
}

}  // namespace

void initialize_weights(const Program& program, const program::JobTensors& tensors, const Layout& layout,
                        const model::Graph& graph, const engine::JobMemory& memory, kernels::Exec& exec,
                        std::uint64_t seed) {
  for (const program::UnitState& unit : tensors.units) zero_tensor(program, unit.master.slice, memory, exec);
  draw_weights(program, tensors, layout, graph, memory, exec, seed,
               [](const model::Parameter&) { return true; });
  zero_moments(program, tensors, memory, exec);
}

void draw_weights(const Program& program, const program::JobTensors& tensors, const Layout& layout,
                  const model::Graph& graph, const engine::JobMemory& memory, kernels::Exec& exec,
                  std::uint64_t seed, const std::function<bool(const model::Parameter&)>& wanted) {
  const Coordinate here(program.mesh, program.rank);
  for (const FlatUnit& unit : layout.units()) {
    const program::UnitState& state = tensors.units[static_cast<std::size_t>(unit.unit)];
    if (state.quantized) continue;
    const std::int64_t begin = unit.shard_begin(here);
    const DType type = program.tensor(state.master.slice).dtype;
    const auto parameter_of = [&](const Piece& piece) -> const model::Parameter& {
      return graph.parameters[static_cast<std::size_t>(piece.parameter)];
    };
    std::vector<Piece> pieces = layout.pieces(unit.unit, here);
    std::erase_if(pieces, [&](const Piece& piece) { return !wanted(parameter_of(piece)); });
    if (pieces.empty()) continue;
    write_tensor(program, state.master.slice, memory, [&](std::byte* slice) {
      for (const Piece& piece : pieces) {
        const model::Parameter& parameter = parameter_of(piece);
        const int part = part_of(layout.parameters()[at(piece.parameter)].slice, here);
        const auto runs = layout.logical_runs(piece.parameter, part, piece.slice_begin, piece.count);
        std::byte* to = slice + (piece.flat_begin - begin) * size_of(type);
        with_type(type, [&]<class P>() { draw<P>(parameter, runs, piece.slice_begin, to, exec, seed); });
      }
    });
  }
}

void write_row_norms(const model::Graph& graph, const checkpoint::Place& place,
                     std::span<const checkpoint::StateShard> shards, const ReadElements& read) {
  for (const checkpoint::StateShard& shard : shards) {
    const std::int64_t begin = place.layout->unit(shard.unit).shard_begin(place.at);
    for (const Piece& piece : place.layout->pieces(shard.unit, place.at)) {
      const model::Parameter& parameter = graph.parameters[at(piece.parameter)];
      if (parameter.init != model::Init::row_norms) continue;
      const int part = part_of(place.layout->parameters()[at(piece.parameter)].slice, place.at);
      for (const LogicalRun& run :
           place.layout->logical_runs(piece.parameter, part, piece.slice_begin, piece.count)) {
        const auto norms = row_norms(graph, config::magnitude_of(parameter.name), run.logical_begin,
                                     run.count, graph.value(parameter.value).dtype, read);
        with_type(shard.dtype, [&]<class P>() {
          std::vector<P> written;
          for (const double norm : norms) written.push_back(static_cast<P>(static_cast<acc_t<P>>(norm)));
          std::byte* const to =
              shard.data +
              (piece.flat_begin - begin + run.slice_begin - piece.slice_begin) * size_of(shard.dtype);
          memory::Provider& memory = shard.memory ? *shard.memory : memory::host_memory();
          memory.write(to, written.data(), std::ssize(written) * size_of(shard.dtype));
        });
      }
    }
  }
}

void draw_elements(const model::Parameter& parameter, std::int64_t begin, Vector<float> to,
                   kernels::Exec& exec, std::uint64_t seed) {
  draw<float>(parameter, {{0, begin, to.count}}, 0, reinterpret_cast<std::byte*>(to.data), exec, seed);
}

void draw_frozen(const Program& program, const program::JobTensors& tensors, const Layout& layout,
                 const model::Graph& graph, const engine::JobMemory& memory, kernels::Exec& exec,
                 std::uint64_t seed) {
  for (const program::UnitState& unit : tensors.units)
    if (!unit.trained && !unit.quantized) zero_tensor(program, unit.master.slice, memory, exec);
  draw_weights(program, tensors, layout, graph, memory, exec, seed,
               [](const model::Parameter& p) { return !p.trainable; });
}

void zero_moments(const Program& program, const program::JobTensors& tensors, const engine::JobMemory& memory,
                  kernels::Exec& exec) {
  for (const program::UnitState& unit : tensors.units)
    for (const program::State& s : unit.optimizer) zero_tensor(program, s.slice, memory, exec);
}

void start_averages(const Program& program, const program::JobTensors& tensors,
                    const engine::JobMemory& memory) {
  constexpr std::int64_t window = std::int64_t{1} << 18;  // elements
  for (const program::UnitState& unit : tensors.units) {
    if (!unit.averaged()) continue;
    const program::TensorId weights = unit.master.slice, averages = unit.optimizer.back().slice;
    const auto provider_of = [&](program::TensorId t) -> memory::Provider& {
      return memory.provider(program.tensor(program.storage(t)).tier);
    };
    const std::int64_t count = elements(program.tensor(averages).shape);
    with_type(program.tensor(weights).dtype, [&]<class W>() {
      std::vector<W> read(at(std::min(window, count)));
      for (std::int64_t begin = 0; begin < count; begin += window) {
        const std::int64_t n = std::min(window, count - begin);
        provider_of(weights).read(read.data(),
                                  memory.address(program, weights) + begin * size_of(dtype_of<W>()),
                                  n * size_of(dtype_of<W>()));
        const std::vector<acc_t<W>> wide(read.begin(), read.begin() + n);
        provider_of(averages).write(memory.address(program, averages) + begin * size_of(dtype_of<acc_t<W>>()),
                                    wide.data(), n * size_of(dtype_of<acc_t<W>>()));
      }
    });
  }
}

namespace {

/// Visits the form and the tensor of each state of each unit.
template <class Visit>
void each_state(const Program& program, const program::JobTensors& tensors, bool optimizer,
                const Visit& visit) {
  for (std::size_t u = 0; u < tensors.units.size(); ++u) {
    const program::UnitState& unit = tensors.units[u];
    const auto tell = [&](const optim::StateInfo& info, program::TensorId t) {
      visit(checkpoint::StateForm{info.name, static_cast<int>(u), program.tensor(t).dtype, info.granule,
                                  info.of_each_copy},
            t);
    };
    if (unit.quantized) continue;  // it is made anew at every start
    tell({"model", {}}, unit.master.slice);
    if (!optimizer || unit.optimizer.empty()) continue;  // a frozen unit has none
    for (std::size_t i = 0; i < unit.states.size(); ++i) {
      optim::StateInfo info = unit.states[i];
      info.name = "optimizer/" + info.name;
      tell(info, unit.optimizer[i].slice);
    }
  }
}

}  // namespace

std::vector<checkpoint::StateForm> state_forms(const Program& program, const program::JobTensors& tensors) {
  std::vector<checkpoint::StateForm> forms;
  each_state(program, tensors, true, [&](const checkpoint::StateForm& form, program::TensorId) {
    if (tensors.units[at(form.unit)].saved) forms.push_back(form);
  });
  return forms;
}

std::vector<checkpoint::StateShard> saved_of(std::vector<checkpoint::StateShard> shards,
                                             const program::JobTensors& tensors) {
  std::erase_if(shards,
                [&](const checkpoint::StateShard& shard) { return !tensors.units[at(shard.unit)].saved; });
  return shards;
}

std::vector<checkpoint::StateShard> state_shards(const Program& program, const program::JobTensors& tensors,
                                                 const engine::JobMemory& memory, bool optimizer) {
  std::vector<checkpoint::StateShard> shards;
  each_state(program, tensors, optimizer, [&](const checkpoint::StateForm& form, program::TensorId t) {
    memory::Provider& provider = memory.provider(program.tensor(program.storage(t)).tier);
    shards.push_back({form.state, form.unit, form.dtype, memory.address(program, t), form.granule,
                      provider.host_accessible() ? nullptr : &provider, form.of_each_copy});
  });
  return shards;
}

/// Visits each copy with the shard that it is of. state_shards and add_snapshots name a unit's state in one
/// order. Units and states that this rank does not save may have no copies.
template <class Visit>
void each_copy(const Program& program, const program::JobTensors& tensors,
               std::vector<checkpoint::StateShard>& shards, const Visit& visit) {
  std::size_t first = 0;  // of the unit
  for (const program::UnitState& unit : tensors.units) {
    if (unit.quantized) continue;
    for (const auto& [state, copy] : unit.snapshot) {
      ASSERT(first + state < shards.size() && shards[first + state].dtype == program.tensor(copy).dtype,
             "'{}' is a copy of no piece of the state", program.tensor(copy).name);
      visit(copy, shards[first + state]);
    }
    first += 1 + unit.optimizer.size();
  }
}

std::vector<checkpoint::StateShard> copied_shards(const Program& program, const program::JobTensors& tensors,
                                                  const engine::JobMemory& memory) {
  std::vector<checkpoint::StateShard> shards = state_shards(program, tensors, memory, true);
  each_copy(program, tensors, shards, [&](program::TensorId copy, checkpoint::StateShard& shard) {
    std::byte* const to = memory.address(program, copy);
    const memory::Provider& from = shard.memory ? *shard.memory : memory::host_memory();
    from.read(to, shard.data, program.tensor(copy).bytes());
    shard.data = to;
    shard.memory = nullptr;
  });
  return saved_of(std::move(shards), tensors);
}

void restore_shards(const Program& program, const program::JobTensors& tensors,
                    const engine::JobMemory& memory) {
  std::vector<checkpoint::StateShard> shards = state_shards(program, tensors, memory, true);
  each_copy(program, tensors, shards, [&](program::TensorId copy, const checkpoint::StateShard& shard) {
    memory::Provider& to = shard.memory ? *shard.memory : memory::host_memory();
    to.write(shard.data, memory.address(program, copy), program.tensor(copy).bytes());
  });
}

checkpoint::Place place_of(const Program& program, const Layout& layout) {
  return {&layout, Coordinate(program.mesh, program.rank)};
}

}  // namespace ztrain::job
