#include "checkpoint/frozen_base.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/json.hpp"
#include "base/plain_text.hpp"

namespace ztrain::checkpoint {
namespace {

using nlohmann::json;

constexpr std::array<const char*, 4> code_names{"none", "nf4", "fp4", "int8"};  ///< by WeightCode

WeightForm code_of(const std::string& name, bool nested) {
  const auto found = std::ranges::find(code_names, name);
  REQUIRE(found != code_names.end(), "its metadata is damaged: '{}' is no code of weights",
          printable(name, most_quoted));
  return {static_cast<WeightCode>(found - code_names.begin()), nested};
}

constexpr std::size_t most_named = 3;  ///< parameters that a message names

std::string place_of_base(const FrozenBase& base) {
  return base.from.empty() ? fmt::format("weights drawn from seed {}", base.seed)
                           : fmt::format("'{}'", base.from);
}

}  // namespace

json to_json(const FrozenBase& base) {
  json parameters = json::object();
  for (const auto& [name, values] : base.parameters)
    parameters[name] = fmt::format("{} {}", name_of(values.dtype), hex(values.hash));
  json text{{"from", base.from},
            {"seed", base.seed},
            {"hash", hex(hash_of(base))},
            {"family", base.family},
            {"parameters", parameters}};
  if (base.leaves_head) text["leaves_head"] = true;
  if (!base.base.empty()) text["base"] = base.base;
  if (base.quantized.form.any())
    text["quantized"] = {{"code", code_names.at(static_cast<std::size_t>(base.quantized.form.code))},
                         {"double", base.quantized.form.nested},
                         {"parameters", base.quantized.names}};
  if (base.added.count > 0)
    text["added_tokens"] = {{"count", base.added.count},
                            {"drawn", base.added.drawn},
                            {"std", base.added.std},
                            {"seed", base.added.seed}};
  return text;
}

std::optional<FrozenBase> frozen_base_of(const json& metadata, const std::string& checkpoint) try {
  if (!metadata.contains(frozen_key)) return std::nullopt;
  const json& text = metadata.at(frozen_key);
  FrozenBase base{.from = text.at("from").get<std::string>(),
                  .seed = text.at("seed").get<std::int64_t>(),
                  .family = text.at("family").get<std::string>(),
                  .leaves_head = text.value("leaves_head", false),
                  .base = text.value("base", "")};
  for (const auto& [name, values] : text.at("parameters").items()) {
    const auto& words = values.get_ref<const std::string&>();
    const std::size_t space = std::min(words.find(' '), words.size());
    FrozenValues& found = base.parameters[name];
    const char *const begin = words.data(), *const end = begin + words.size();
    const auto [read, error] = std::from_chars(std::min(begin + space + 1, end), end, found.hash, 16);
    REQUIRE(space < words.size() && read == end && error == std::errc(),
            "{}: its metadata is damaged: '{}' is no hash of {}", checkpoint, printable(words, most_quoted),
            name);
    found.dtype = dtype_from(words.substr(0, space));
  }
  if (text.contains("added_tokens")) {
    const json& added = text.at("added_tokens");
    base.added = {added.at("count").get<std::int64_t>(), added.at("drawn").get<bool>(),
                  added.at("std").get<double>(), added.at("seed").get<std::uint64_t>()};
  }
  if (text.contains("quantized")) {
    const json& quantized = text.at("quantized");
    base.quantized = {code_of(quantized.at("code").get<std::string>(), quantized.at("double").get<bool>()),
                      quantized.at("parameters").get<std::set<std::string>>()};
  }
  return base;
} catch (const json::exception& e) {
  fail("{}: its metadata is damaged: what it says of frozen weights cannot be read ({})", checkpoint,
       reason_of(e));
}

std::uint64_t hash_of(const FrozenBase& base) {
  std::uint64_t hash = 0;
  for (const auto& [name, values] : base.parameters)
    hash = hash_text(fmt::format("{} {} {}", name, name_of(values.dtype), values.hash), hash);
  return hash;
}

void set_hashes(FrozenBase& base, const Group& world, std::span<const ParameterShape> parameters,
                const ValueHashes& hashes, const std::function<bool(const ParameterShape&)>& wanted) {
  std::vector<std::int64_t> own;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    own.push_back(static_cast<std::int64_t>(hashes.sums()[p]));
    own.push_back(hashes.dtypes()[p]);
  }
  std::vector<int> counts;
  const std::vector<std::int64_t> all = world.gather(own, counts);
  base.parameters.clear();
  for (std::size_t p = 0; p < parameters.size() && !all.empty(); ++p) {
    if (!wanted(parameters[p])) continue;
    FrozenValues values;
    for (std::size_t i = 2 * p; i < all.size(); i += own.size()) {
      values.hash += static_cast<std::uint64_t>(all[i]);
      if (all[i + 1] >= 0) values.dtype = static_cast<DType>(all[i + 1]);
    }
    base.parameters[parameters[p].name] = values;
  }
  const json said = parse_json(world.broadcast(json_text(json{{frozen_key, to_json(base)}})));
  base = *frozen_base_of(said, base.from);
}

void require_same_base(const std::string& checkpoint, const FrozenBase& saved, const FrozenBase& now,
                       const std::string& instead) {
  if (saved.parameters == now.parameters) return;
  std::vector<std::string> other;
  for (const auto& [name, values] : saved.parameters)
    if (const auto found = now.parameters.find(name);
        found == now.parameters.end() || found->second != values)
      other.push_back(name);
  const std::size_t count = other.size();
  if (count > most_named) other.resize(most_named);
  fail(
      "{}: was trained beside the frozen weights of {} (hash {}), and {} has others (hash {}): {} of {} "
      "parameters differ: {}{}; {}",
      checkpoint, place_of_base(saved), hex(hash_of(saved)), place_of_base(now), hex(hash_of(now)), count,
      saved.parameters.size(), fmt::join(other, ", "), count > most_named ? ", ..." : "", instead);
}

}  // namespace ztrain::checkpoint
