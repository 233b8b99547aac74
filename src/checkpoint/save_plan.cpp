#include "checkpoint/save_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "files/posix_file.hpp"

namespace ztrain::checkpoint {
namespace {

/// Adds a state. Throws Error if the catalog has the state with another granule.
void add_state(Catalog& catalog, const StateEntry& state) {
  const auto known = std::ranges::find(catalog.states, state.name, &StateEntry::name);
  if (known == catalog.states.end())
    catalog.states.push_back(state);
  else
    REQUIRE(known->granule == state.granule,
            "{} has an item for every {} elements in one place and for every {} in another", state.name,
            known->granule, state.granule);
}

void require_same(const ParameterEntry& a, const ParameterEntry& b) {
  REQUIRE(a.shape == b.shape, "{} has shape {} on one rank and {} on another", a.name, to_string(a.shape),
          to_string(b.shape));
  REQUIRE(a.frozen == b.frozen, "{} is frozen on one rank and trained on another", a.name);
  REQUIRE(a.by_matrix == b.by_matrix, "{} is stepped by matrices on one rank alone", a.name);
  REQUIRE(a.begins == b.begins, "ranks disagree on how {} is cut over the tensor axis", a.name);
}

using Numbers = std::map<std::string, std::int64_t>;

Numbers numbers_of(const Catalog& catalog) {
  Numbers numbers;
  for (const ParameterEntry& p : catalog.parameters) numbers.emplace(p.name, std::ssize(numbers));
  return numbers;
}

PieceRow row_of(const Piece& piece, const ParameterShape& parameter, const StateForm& form,
                const Coordinate& place) {
  PieceRow row;
  if (!parameter.slice.whole()) {
    row.tensor_dim = parameter.slice.dim;
    row.tensor_parts = parameter.slice.parts;
    row.tensor_index = part_of(parameter.slice, place);
  }
  row.slice_begin = piece.slice_begin / form.granule;
  row.count = ceil_div(piece.count, form.granule);
  row.dtype = static_cast<std::int64_t>(form.dtype);
  return row;
}

/// Returns whether the rank at a place saves what it holds of a parameter in a state of this form.
bool saves(const Coordinate& place, const FlatUnit& unit, const ParameterShape& parameter,
           const StateForm& form) {
  return owns(place, unit, parameter, form.of_each_copy ? token_axes : AxisSet());
}

/// Shards, of the units that are cut over these axes, of ranks that have the same part.
struct ShardRun {
  Coordinate at;  ///< coordinate of the first of these ranks
  AxisSet axes;
  int begin, end;
};

class Planner {
 public:
  Planner(const MeshShape& mesh, const std::vector<const SavePart*>& parts) : mesh_(mesh), parts_(parts) {
    std::vector<const SavePart*> distinct;  // the different parts, in the order of ranks
    for (const SavePart* part : parts)
      if (std::ranges::find(distinct, part) == distinct.end()) distinct.push_back(part);
    for (const SavePart* part : distinct) {
      merge(plan_.catalog, catalog_of(part->layout, mesh, part->states));
      has_copies_ = has_copies_ || std::ranges::any_of(part->states, &StateForm::of_each_copy);
      // A dataset above largest_dataset is split between two ranks' pieces. If a unit is that large, shards
      // must not be merged into one row.
      for (const FlatUnit& unit : part->layout.units())
        keeps_cuts_ =
            keeps_cuts_ || unit.elements() * mesh.size(slice_axes.without(unit.shard_axes)) > largest_dataset;
    }
    for (const SavePart* part : distinct)
      rows_.emplace(part, PartRows(part->layout, part->states, plan_.catalog));
  }

  SavePlan run(const std::vector<std::int64_t>& nodes, int wanted) {
    const std::int64_t items = require_all_saved();
    const DealtFiles dealt = deal_files(writers(), nodes, wanted);
    std::vector<std::vector<int>> ranks_of(at(dealt.count));
    for (std::size_t rank = 0; rank < dealt.of_rank.size(); ++rank)
      if (dealt.of_rank[rank] >= 0) ranks_of[at(dealt.of_rank[rank])].push_back(static_cast<int>(rank));
    for (const std::vector<int>& ranks : ranks_of) add_file(ranks);
    std::int64_t planned = 0;
    for (const PlannedShardFile& file : plan_.files)
      for (const PlannedDataset& dataset : file.datasets) planned += dataset.items;
    REQUIRE(planned == items, "the files hold {} items, and the states of all parameters have {}", planned,
            items);
    return std::move(plan_);
  }

 private:
  const SavePart& part_of(const Coordinate& place) const { return *parts_.at(at(place.index_in(part_axes))); }

  std::vector<FormRow> rows_of(const ShardRun& run) const {
    return rows_.at(&part_of(run.at)).of_shards(run.at, run.axes, run.begin, run.end);
  }

  /// Returns the number of ranks of the run that hold some of a row.
  std::int64_t pieces_of(const FormRow& found, const ShardRun& run) const {
    const SavePart& part = part_of(run.at);
    const StateForm& form = part.states[found.form];
    const std::int64_t shard = part.layout.unit(form.unit).shard_elements;
    const std::int64_t last = found.flat_begin + found.row.count * form.granule - 1;
    return last / shard - found.flat_begin / shard + 1;
  }

  /// Throws Error unless all items are saved. Returns the number of items of all states.
  std::int64_t require_all_saved() const {
    Index index{plan_.catalog, {}, {}, {}};
    for (int rank = 0; rank < mesh_.ranks(); ++rank) {
      const Coordinate place(mesh_, rank);
      if (!has_copies_ && place.index_in(token_axes.without(slice_axes)) > 0) continue;
      for (const AxisSet axes : axes_of_shards(part_of(place).layout)) {
        if (place.index_in(axes) > 0) continue;
        for (const FormRow& found : rows_of({place, axes, 0, mesh_.size(axes)}))
          index.pieces.push_back(found.row);
      }
    }
    std::ranges::sort(index.pieces, piece_before);
    require_complete(index);
    std::int64_t items = 0;
    for (const PieceRow& row : index.pieces) items += row.count;
    return items;
  }

  bool writes(const Coordinate& place) const {
    const SavePart& part = part_of(place);
    return std::ranges::any_of(part.states, [&](const StateForm& form) {
      const Layout& layout = part.layout;
      return std::ranges::any_of(layout.pieces(form.unit, place), [&](const Piece& piece) {
        return saves(place, layout.unit(form.unit), layout.parameters()[at(piece.parameter)], form);
      });
    });
  }

  std::vector<std::int64_t> writers() const {
    std::vector<std::int64_t> all;
    for (int rank = 0; rank < mesh_.ranks(); ++rank) all.push_back(writes({mesh_, rank}) ? 1 : 0);
    return all;
  }

  std::vector<ShardRun> runs_of(const std::vector<int>& ranks) const {
    std::vector<ShardRun> runs;
    std::map<std::pair<int, std::uint32_t>, std::size_t> last;  // run of each part, copy and axes
    for (const int rank : ranks) {
      const Coordinate place(mesh_, rank);
      for (const AxisSet axes : axes_of_shards(part_of(place).layout)) {
        if (!has_copies_ && place.index_in(token_axes.without(axes | slice_axes)) > 0) continue;
        const int shard = place.index_in(axes);
        const auto [known, fresh] = last.try_emplace(
            {place.index_in((part_axes | token_axes).without(axes)), axes.bits()}, runs.size());
        if (!keeps_cuts_ && !fresh && runs[known->second].end == shard) {
          ++runs[known->second].end;
          continue;
        }
        known->second = runs.size();
        runs.push_back({place, axes, shard, shard + 1});
      }
    }
    return runs;
  }

  void add_file(const std::vector<int>& ranks) {
    PlannedShardFile file{file_name(std::ssize(plan_.files)), 0, 0, {}};
    std::vector<PieceRow> rows;
    for (const ShardRun& run : runs_of(ranks))
      for (const FormRow& found : rows_of(run)) {
        file.pieces += pieces_of(found, run);
        rows.push_back(found.row);
      }
    std::vector<PieceRow*> order;
    for (PieceRow& row : rows) order.push_back(&row);
    file.datasets = lay_out(plan_.catalog, order);
    for (const PlannedDataset& dataset : file.datasets) file.bytes += dataset.items * size_of(dataset.dtype);
    plan_.files.push_back(std::move(file));
  }

  const MeshShape& mesh_;
  const std::vector<const SavePart*>& parts_;
  SavePlan plan_;
  std::map<const SavePart*, PartRows> rows_;
  bool keeps_cuts_ = false;
  bool has_copies_ = false;  ///< whether a state is of each copy, so that copies save as well
};

}  // namespace

std::vector<StateForm> forms_of(std::span<const StateShard> states) {
  std::vector<StateForm> forms;
  for (const StateShard& s : states) forms.push_back({s.state, s.unit, s.dtype, s.granule, s.of_each_copy});
  return forms;
}

Catalog catalog_of(const Layout& layout, const MeshShape& mesh, std::span<const StateForm> states) {
  Catalog catalog;
  std::set<int> held, copied;        // units whose weights are saved, and that have a state of each copy
  std::map<std::string, int> named;  // copies of a state that the catalog has
  const auto copies_of = [&](const ParameterShape& p) {
    return mesh.size(values_over(layout.unit(p.unit).shard_axes, p.slice));
  };
  for (const StateForm& s : states) {
    if (s.state == weights_state) held.insert(s.unit);
    if (!s.of_each_copy) {
      add_state(catalog, {s.state, s.granule});
      continue;
    }
    copied.insert(s.unit);
    int most = 0;
    for (const Segment& segment : layout.unit(s.unit).segments)
      most = std::max(most, copies_of(layout.parameters()[at(segment.parameter)]));
    if (most > 0) add_state(catalog, {copy_name(s.state, 0), s.granule});
    for (int& copy = named.try_emplace(s.state, 1).first->second; copy < most; ++copy)
      add_state(catalog, {copy_name(s.state, copy), s.granule});
  }
  // This rank knows nothing of parameters on other stages of the pipeline; see merge().
  for (const ParameterShape& p : layout.parameters())
    catalog.parameters.push_back({p.name, p.shape, !p.trainable, p.slice.begins,
                                  !p.trainable && !held.contains(p.unit), p.by_matrix,
                                  p.trainable && copied.contains(p.unit) ? copies_of(p) : 0});
  return catalog;
}

void merge(Catalog& catalog, const Catalog& other) {
  for (const StateEntry& state : other.states) add_state(catalog, state);
  Numbers known = numbers_of(catalog);
  for (const ParameterEntry& p : other.parameters) {
    const auto [number, added] = known.try_emplace(p.name, std::ssize(catalog.parameters));
    if (added) {
      catalog.parameters.push_back(p);
      continue;
    }
    ParameterEntry& entry = catalog.parameters[at(number->second)];
    require_same(entry, p);
    entry.elsewhere = entry.elsewhere && p.elsewhere;
    entry.copies = std::max(entry.copies, p.copies);
  }
}

PartRows::PartRows(const Layout& layout, std::span<const StateForm> states, const Catalog& catalog)
    : layout_(layout), states_(states) {
  const Numbers numbers = numbers_of(catalog);
  Numbers of_states;
  for (const StateEntry& state : catalog.states) of_states.emplace(state.name, std::ssize(of_states));
  for (const StateForm& form : states) {
    std::vector<std::int64_t>& own = state_numbers_.emplace_back();
    if (!form.of_each_copy) own.push_back(of_states.at(form.state));
    while (form.of_each_copy) {
      const auto next = of_states.find(copy_name(form.state, std::ssize(own)));
      if (next == of_states.end()) break;
      own.push_back(next->second);
    }
  }
  for (const ParameterShape& p : layout.parameters()) parameter_numbers_.push_back(numbers.at(p.name));
}

std::vector<FormRow> PartRows::of_shards(const Coordinate& place, AxisSet axes, int begin, int end) const {
  std::vector<FormRow> rows;
  for (std::size_t f = 0; f < states_.size(); ++f) {
    const StateForm& form = states_[f];
    const FlatUnit& unit = layout_.unit(form.unit);
    if (unit.shard_axes != axes) continue;
    for (const Piece& piece :
         layout_.pieces(form.unit, begin * unit.shard_elements, end * unit.shard_elements)) {
      const ParameterShape& parameter = layout_.parameters()[at(piece.parameter)];
      if (!saves(place, unit, parameter, form)) continue;
      const int copy = form.of_each_copy ? place.index_in(values_over(unit.shard_axes, parameter.slice)) : 0;
      PieceRow row = row_of(piece, parameter, form, place);
      row.state = state_numbers_[f][at(copy)];
      row.parameter = parameter_numbers_[at(piece.parameter)];
      row.unit = parameter_numbers_[at(unit.segments.front().parameter)];
      rows.push_back({row, f, piece.flat_begin});
    }
  }
  return rows;
}

DealtFiles deal_files(const std::vector<std::int64_t>& writers, const std::vector<std::int64_t>& nodes,
                      int wanted) {
  std::vector<std::pair<std::int64_t, std::size_t>> order;  // node and rank of each rank that writes
  std::set<std::int64_t> writing_nodes;
  for (std::size_t rank = 0; rank < writers.size(); ++rank) {
    if (writers[rank] == 0) continue;
    order.emplace_back(nodes[rank], rank);
    writing_nodes.insert(nodes[rank]);
  }
  std::ranges::sort(order);
  const bool by_node = wanted <= 0 && std::ssize(writing_nodes) <= max_files;
  const std::int64_t files = by_node ? std::ssize(writing_nodes) : wanted > 0 ? wanted : max_files;
  DealtFiles dealt;
  dealt.count = static_cast<int>(std::min<std::int64_t>({files, std::ssize(order), max_files}));
  dealt.of_rank.assign(writers.size(), -1);
  int node = -1;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || order[i].first != order[i - 1].first) ++node;
    dealt.of_rank[order[i].second] =
        by_node ? node : static_cast<int>(static_cast<std::int64_t>(i) * dealt.count / std::ssize(order));
  }
  return dealt;
}

std::vector<PlannedDataset> lay_out(const Catalog& catalog, std::vector<PieceRow*>& rows) {
  std::ranges::sort(rows, {}, [](const PieceRow* p) {
    return std::tuple(p->state, p->unit, p->tensor_index, p->parameter, p->slice_begin);
  });
  std::vector<PlannedDataset> datasets;
  const PieceRow* before = nullptr;
  for (PieceRow* row : rows) {
    const std::string& state = catalog.states[at(row->state)].name;
    const bool goes_on = before && before->state == row->state && before->unit == row->unit;
    REQUIRE(!goes_on || before->dtype == row->dtype,
            "{} of {} is {}, and that of {}, which is of the same unit, is {}", state,
            catalog.parameters[at(before->parameter)].name, name_of(before->type()),
            catalog.parameters[at(row->parameter)].name, name_of(row->type()));
    const bool full = goes_on && datasets.back().items + row->count > largest_dataset;
    row->part = !goes_on ? 0 : before->part + (full ? 1 : 0);
    if (!goes_on || full) datasets.push_back({dataset_name(state, *row), row->type()});
    row->dataset_begin = datasets.back().items;
    datasets.back().items += row->count;
    ++datasets.back().rows;
    before = row;
  }
  return datasets;
}

std::vector<std::string> lines_of(const SavePart& part) {
  std::vector<std::string> lines;
  const Layout& layout = part.layout;
  const auto& parameters = layout.parameters();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const ParameterShape& q = parameters[p];
    const Segment& segment = layout.segment_of(static_cast<int>(p));
    const std::string place = q.unit < 0 ? "on other ranks"
                                         : fmt::format("unit {}, elements {} to {}", q.unit, segment.begin,
                                                       segment.begin + segment.count);
    lines.push_back(fmt::format("{} {}, {}, cut over dim {} into {} at [{}] over {}, shared with rank {}, {}",
                                q.name, to_string(q.shape), q.trainable ? "trained" : "frozen", q.slice.dim,
                                q.slice.parts, fmt::join(q.slice.begins, ", "), to_string(q.slice.axes),
                                q.other_rank, place));
  }
  for (const FlatUnit& unit : layout.units())
    lines.push_back(fmt::format("unit {}: {} shards of {} elements over {}", unit.unit, unit.shards,
                                unit.shard_elements, to_string(unit.shard_axes)));
  for (const StateForm& s : part.states)
    lines.push_back(fmt::format("{}{} of unit {}: {}, an item for every {} elements", s.state,
                                s.of_each_copy ? " of each copy" : "", s.unit, name_of(s.dtype), s.granule));
  return lines;
}

std::int64_t largest_size(std::int64_t bytes, std::int64_t pieces) {
  constexpr std::int64_t descriptions = 1 << 20;
  return descriptions + bytes + pieces * direct_page;
}

std::int64_t SavePlan::bytes() const {
  std::int64_t sum = 0;
  for (const PlannedShardFile& file : files) sum += file.bytes;
  return sum;
}

std::int64_t SavePlan::datasets() const {
  std::int64_t sum = 0;
  for (const PlannedShardFile& file : files) sum += std::ssize(file.datasets);
  return sum;
}

SavePlan plan_save(const MeshShape& mesh, const std::vector<const SavePart*>& parts,
                   const std::vector<std::int64_t>& nodes, int files) {
  return Planner(mesh, parts).run(nodes, files);
}

}  // namespace ztrain::checkpoint
