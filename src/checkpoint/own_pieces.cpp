#include "checkpoint/own_pieces.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace ztrain::checkpoint {
namespace {

template <class List, class Match>
std::int64_t index_where(const List& list, Match match) {
  return std::find_if(list.begin(), list.end(), match) - list.begin();
}

}  // namespace

std::vector<OwnPiece> own_pieces(const Place& place, std::span<const StateShard> states,
                                 const Catalog& catalog) {
  std::map<std::string, std::int64_t> number;
  for (const auto& p : catalog.parameters) number.emplace(p.name, static_cast<std::int64_t>(number.size()));
  std::vector<OwnPiece> pieces;
  for (const StateShard& shard : states) {
    const std::int64_t granule = shard.granule;
    const FlatUnit& unit = place.layout->unit(shard.unit);
    const std::int64_t begin = place.shard_index * unit.shard_elements;
    for (const Piece& piece : place.layout->pieces(shard.unit, begin, begin + unit.shard_elements)) {
      const ParameterShape& parameter = place.layout->parameters()[static_cast<std::size_t>(piece.parameter)];
      if (!owns(place.at, parameter)) continue;
      PieceRow row;
      row.state = index_where(catalog.states, [&](const StateEntry& s) { return s.name == shard.state; });
      row.parameter = number.at(parameter.name);
      if (!parameter.slice.whole()) {
        row.tensor_dim = parameter.slice.dim;
        row.tensor_parts = parameter.slice.parts;
        row.tensor_index = place.at[Axis::tensor];
      }
      row.slice_begin = piece.slice_begin / granule;
      row.count = ceil_div(piece.count, granule);
      row.dtype = static_cast<std::int64_t>(shard.dtype);
      row.unit = shard.unit;
      pieces.push_back(
          {row, shard.data + (piece.flat_begin - begin) / granule * size_of(shard.dtype), shard.memory});
    }
  }
  return pieces;
}

}  // namespace ztrain::checkpoint
