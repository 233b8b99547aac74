#include "checkpoint/own_pieces.hpp"

#include <nlohmann/json.hpp>
#include <string>

#include "base/hash.hpp"
#include "base/json.hpp"
#include "checkpoint/save_plan.hpp"

namespace ztrain::checkpoint {
namespace {

using json = nlohmann::json;

json to_json(const Catalog& catalog) {
  json states = json::array(), parameters = json::array();
  for (const auto& s : catalog.states) states.push_back(json::array({s.name, s.granule}));
  for (const auto& p : catalog.parameters) parameters.push_back({p.name, p.shape, p.frozen, p.begins});
  return {states, parameters};
}

Catalog from_json(const json& text) {
  Catalog catalog;
  for (const auto& state : text[0])
    catalog.states.push_back({state[0].get<std::string>(), state[1].get<std::int64_t>()});
  for (const auto& p : text[1])
    catalog.parameters.push_back({p[0].get<std::string>(), p[1].get<Shape>(), p[2].get<bool>(),
                                  p[3].get<std::vector<std::int64_t>>()});
  return catalog;
}

}  // namespace

Catalog agree_on_catalog(const Group& world, const Layout& layout, std::span<const StateShard> states) {
  Catalog own;
  world.together([&] { own = catalog_of(layout, forms_of(states)); });
  const std::string text = json_text(to_json(own));
  const auto identities = world.all_gather(static_cast<std::int64_t>(hash_text(text)));
  const bool same = identities[static_cast<std::size_t>(world.rank())] == identities[0];
  const auto others = world.gather_text(same ? "" : text);
  Catalog catalog = own;
  world.together([&] {
    for (const std::string& other : others)
      if (!other.empty()) merge(catalog, from_json(parse_json(other)));
  });
  return from_json(parse_json(world.broadcast(json_text(to_json(catalog)))));
}

std::vector<OwnPiece> own_pieces(const Place& place, std::span<const StateShard> states,
                                 const Catalog& catalog) {
  const std::vector<StateForm> forms = forms_of(states);
  std::vector<OwnPiece> pieces;
  const PartRows rows(*place.layout, forms, catalog);
  for (const AxisSet axes : axes_of_shards(*place.layout)) {
    const int index = place.at.index_in(axes);
    for (const FormRow& found : rows.of_shards(place.at, axes, index, index + 1)) {
      const StateShard& shard = states[found.form];
      const std::int64_t begin = place.layout->unit(shard.unit).shard_begin(place.at);
      pieces.push_back({found.row,
                        shard.data + (found.flat_begin - begin) / shard.granule * size_of(shard.dtype),
                        shard.memory});
    }
  }
  return pieces;
}

}  // namespace ztrain::checkpoint
