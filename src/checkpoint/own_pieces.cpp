#include "checkpoint/own_pieces.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/json.hpp"

namespace ztrain::checkpoint {
namespace {

using json = nlohmann::json;

/// A name has one granule, whoever says so.
void add_state(Catalog& catalog, const StateEntry& state) {
  const auto known = std::ranges::find(catalog.states, state.name, &StateEntry::name);
  if (known == catalog.states.end())
    catalog.states.push_back(state);
  else
    REQUIRE(known->granule == state.granule,
            "{} has an item for every {} elements in one place and for every {} in another", state.name,
            known->granule, state.granule);
}

Catalog own_catalog(const Layout& layout, std::span<const StateShard> states) {
  Catalog catalog;
  for (const StateShard& s : states) add_state(catalog, {s.state, s.granule});
  for (const ParameterShape& p : layout.parameters())
    catalog.parameters.push_back({p.name, p.shape, !p.trainable, p.slice.begins});
  return catalog;
}

json to_json(const Catalog& catalog) {
  json states = json::array(), parameters = json::array();
  for (const auto& s : catalog.states) states.push_back(json::array({s.name, s.granule}));
  for (const auto& p : catalog.parameters) parameters.push_back({p.name, p.shape, p.frozen, p.begins});
  return {states, parameters};
}

void merge(Catalog& catalog, const json& other) {
  for (const auto& state : other[0])
    add_state(catalog, {state[0].get<std::string>(), state[1].get<std::int64_t>()});
  std::map<std::string, Shape> known;
  for (const auto& p : catalog.parameters) known[p.name] = p.shape;
  for (const auto& entry : other[1]) {
    const ParameterEntry p{entry[0].get<std::string>(), entry[1].get<Shape>(), entry[2].get<bool>(),
                           entry[3].get<std::vector<std::int64_t>>()};
    const auto [at, added] = known.try_emplace(p.name, p.shape);
    if (added) catalog.parameters.push_back(p);
    REQUIRE(at->second == p.shape, "{} has shape {} on one rank and {} on another", p.name,
            to_string(at->second), to_string(p.shape));
  }
}

}  // namespace

Catalog agree_on_catalog(const Group& world, const Layout& layout, std::span<const StateShard> states) {
  Catalog own;
  world.together([&] { own = own_catalog(layout, states); });
  const std::string text = json_text(to_json(own));
  const auto identities = world.all_gather(static_cast<std::int64_t>(hash_text(text)));
  const bool same = identities[static_cast<std::size_t>(world.rank())] == identities[0];
  const auto others = world.gather_text(same ? "" : text);
  Catalog catalog = own;
  world.together([&] {
    for (const std::string& other : others)
      if (!other.empty()) merge(catalog, parse_json(other));
  });
  const auto all = parse_json(world.broadcast(json_text(to_json(catalog))));
  Catalog agreed;
  merge(agreed, all);
  return agreed;
}

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
      row.state = std::ranges::find(catalog.states, shard.state, &StateEntry::name) - catalog.states.begin();
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
