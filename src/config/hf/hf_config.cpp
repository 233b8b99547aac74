#include "config/hf/hf_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/plain_text.hpp"
#include "config/architectures.hpp"
#include "config/fields/model_keys.hpp"
#include "config/fields/value.hpp"
#include "config/hf/hf_json.hpp"
#include "config/hf/hf_keys.hpp"
#include "config/hf/reward_model.hpp"
#include "files/file.hpp"

namespace ztrain::config {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const Architecture& architecture_of(const Members& c) {
  const std::string only = "ztrain reads " + hf_classes();
  REQUIRE(c.has("architectures") && c.at("architectures").is_array(), "{}: architectures is missing; {}",
          c.where(), only);
  for (const Architecture& a : architectures())
    for (const auto& name : c.at("architectures"))
      if (name == a.hf_class || name == reward_class(a)) {
        const std::string type = c.string("model_type", std::string(a.model_type).c_str());
        REQUIRE(type == a.model_type,
                "{}: model_type = \"{}\" contradicts architectures = {}, whose is \"{}\"", c.where(),
                printable(type, most_quoted), c.text("architectures"), a.model_type);
        return a;
      }
  fail("{}: architectures = {}: not supported; {}", c.where(), c.text("architectures"), only);
}

/// Returns TOML of the type that an access reaches.
struct ReadToml {
  const Members& c;
  const char* name;

  std::string operator()(std::string& (*)(Deck&)) const { return toml_string(c.string(name, "")); }
  std::string operator()(std::int64_t& (*)(Deck&)) const { return fmt::to_string(c.integer(name)); }
  std::string operator()(double& (*)(Deck&)) const { return fmt::format("{}", c.number(name)); }
  std::string operator()(bool& (*)(Deck&)) const { return c.boolean(name, false) ? "true" : "false"; }
  std::string operator()(std::vector<double>& (*)(Deck&)) const { return list("numbers", &json::is_number); }
  std::string operator()(std::vector<std::string>& (*)(Deck&)) const {
    return list("strings", &json::is_string);
  }
  template <class Other>
  std::string operator()(Other) const {
    fail("{}: {} has a type that no config.json holds", c.where(), name);
  }

  std::string list(const char* things, bool (json::*fits)() const noexcept) const {
    const json& all = c.at(name);
    REQUIRE(all.is_array() && std::ranges::all_of(all, [&](const json& x) { return (x.*fits)(); }),
            "{}: {} = {}: must be a list of {}", c.where(), name, c.text(name), things);
    return json_text(all);
  }
};

struct WriteJson {
  Deck& deck;

  template <class Value>
  json operator()(Value& (*member)(Deck&)) const {
    if constexpr (std::is_constructible_v<json, Value&>)
      return member(deck);
    else
      fail("a key of this type is in no config.json");
  }
  json operator()(DType& (*)(Deck&)) const { fail("a dtype is no key of a model"); }
  json operator()(Pair (*)(Deck&)) const { fail("a pair is no key of a model"); }
};

bool is_mxfp4(const json& quantization) {
  return quantization.is_object() && quantization.contains("quant_method") &&
         quantization["quant_method"] == "mxfp4";
}

bool has_mxfp4_files(const Architecture& a) {
  return std::ranges::any_of(a.files, [](const FileTensor& row) { return row.tensor.ends_with("_blocks"); });
}

bool is_left_out(const ModelKey& row) {
  return row.role == KeyRole::dropped || row.role == KeyRole::further_layers;
}

/// Throws Error for what no family here computes.
void require_computable(const Members& c, const Architecture& a, bool trusted) {
  const auto refuse_other = [&](const char* name, std::string_view own) {
    fail("{}: {} = {}: not supported; ztrain's {} has {}", c.where(), name, c.text(name), a.family, own);
  };
  for (const ModelKey& row : a.keys) {
    if (is_left_out(row)) static_cast<void>(c.number(row.hf, 0));
    if (row.role == KeyRole::fixed && row.in_file() && c.has(row.hf) &&
        c.at(row.hf) != parse_json(row.standard))
      refuse_other(row.hf, row.standard);
  }
  for (const Field& field : fields()) {
    const std::string name = field.member();
    const bool simple = std::holds_alternative<bool& (*)(Deck&)>(field.access) ||
                        std::holds_alternative<double& (*)(Deck&)>(field.access);
    const bool others = shapes_model(field) && simple && find_key(a, field.key) == nullptr;
    if (others && c.has(name.c_str()) && c.at(name.c_str()) != parse_json(field.standard))
      refuse_other(name.c_str(), field.standard);
  }
  REQUIRE(!c.has("quantization_config") || (is_mxfp4(c.at("quantization_config")) && has_mxfp4_files(a)),
          "{}: quantization_config: not supported; give the model's bf16, fp16 or fp32 weights", c.where());
  REQUIRE(trusted || !c.has("auto_map"),
          "{}: auto_map asks for code of the model's own ({}), which ztrain does not run; if the model is {} "
          "all the same, model.trust_config = true believes the file's other keys",
          c.where(), c.text("auto_map"), a.hf_class);
}

/// Takes a value of the table. 0 may stand for what read_widths() derives, where no deck says 0.
void take(const Field& field, std::string_view value, Deck& deck, const std::string& where) {
  const auto* count = std::get_if<std::int64_t& (*)(Deck&)>(&field.access);
  if (count != nullptr && value == "0")
    (*count)(deck) = 0;
  else
    assign(field, value, deck, where);
}

/// Reads the keys that stand for themselves.
void read_keys(const Members& c, const Architecture& a, Deck& deck) {
  constexpr std::array<std::string_view, 3> may_be_zero{"model.sliding_window", "model.full_attention_layers",
                                                        "model.first_k_dense_replace"};
  for (const ModelKey& row : a.keys) {
    if (!row.in_deck()) continue;
    const Field& field = *find_field(row.key);
    const char* name = row.has_other() && !c.has(row.hf) ? row.other : row.hf;
    const bool given = row.in_file() && c.has(name), null = row.in_file() && c.contains(name);
    if (given) {
      const std::string value = toml_of(c, name, field);
      const bool count = std::holds_alternative<std::int64_t& (*)(Deck&)>(field.access);
      REQUIRE(!count || std::ranges::count(may_be_zero, field.key) > 0 || c.integer(name) > 0,
              "{}: {} ({}) must be positive", c.where(), name, value);
      assign(field, value, deck, c.where());
    } else if (null && row.has_null()) {
      take(field, row.null, deck, c.where());
    } else if (row.has_standard()) {
      take(field, row.standard, deck, c.where());
    } else {
      REQUIRE(!row.in_file(), "{}: {} is missing", c.where(), row.hf);
    }
  }
}

/// Replaces widths that follow from others.
void read_widths(const Members& c, const Architecture& a, Model& m) {
  if (m.intermediate_size == 0)
    m.intermediate_size = static_cast<std::int64_t>(derived("model.intermediate_size", m));
  if (m.num_key_value_heads == 0) m.num_key_value_heads = m.num_attention_heads;
  if (is_latent(m)) m.head_dim = derived_head_dim(m);
  if (m.head_dim > 0) return;
  REQUIRE(m.hidden_size % m.num_attention_heads == 0, "{}: {} ({}) does not divide {} ({})", c.where(),
          find_key(a, "model.num_attention_heads")->hf, m.num_attention_heads,
          find_key(a, "model.hidden_size")->hf, m.hidden_size);
  m.head_dim = m.hidden_size / m.num_attention_heads;
}

/// Returns the file's object, or an object without members if there is no file.
json read_if_there(const fs::path& path) {
  return file_exists(path.string()) ? read_json(path.string()) : json::object();
}

}  // namespace

std::string hf_config_path(const std::string& folder) {
  return (fs::path(folder) / "config.json").string();
}

std::string toml_of(const Members& c, const char* name, const Field& field) {
  return std::visit(ReadToml{c, name}, field.access);
}

json json_of(const Field& field, const Deck& deck) {
  return std::visit(WriteJson{const_cast<Deck&>(deck)}, field.access);
}

Settings hf_settings(const std::string& folder, bool trusted) {
  const std::string path = hf_config_path(folder);
  const json parsed = read_hf_config(path);
  const Members c(path, parsed);
  const Architecture& a = architecture_of(c);
  require_computable(c, a, trusted);
  Deck deck;
  for (const Field& field : fields())
    if (shapes_model(field)) assign(field, field.standard, deck, path);
  deck.model.family = a.family;
  read_keys(c, a, deck);
  read_widths(c, a, deck.model);
  read_layers(c, a, deck.model);
  read_rope(c, a, deck);
  Settings s;
  for (const Field& field : fields()) {
    const ModelKey* row = find_key(a, field.key);
    const bool unused = is_of_other_scaling(field.key, deck) && (row == nullptr || !row->in_file());
    if (shapes_model(field) && !unused) s.emplace_back(field.key, render(field, deck));
  }
  return s;
}

std::string left_out_note(const Model& model) {
  const std::string path = hf_config_path(model.from);
  if (model.from.empty() || !file_exists(path)) return "";
  const json parsed = read_hf_config(path);
  const Members c(path, parsed);
  std::string shares;
  for (const ModelKey& row : find_architecture(model.family).keys) {
    if (!is_left_out(row) || c.number(row.hf, 0) == 0) continue;
    if (row.role == KeyRole::further_layers)
      return fmt::format("ztrain leaves out the layers that predict further tokens; {} says {} = {}", path,
                         row.hf, c.text(row.hf));
    shares += fmt::format("{}{} = {}", shares.empty() ? "" : ", ", row.hf, c.text(row.hf));
  }
  return shares.empty() ? "" : fmt::format("ztrain trains without dropout; {} says {}", path, shares);
}

std::vector<std::int32_t> hf_eos(const std::string& folder) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const fs::path path = fs::path(folder) / name;
    const json parsed = read_if_there(path);
    auto found = Members(path.string(), parsed).tokens("eos_token_id");
    if (!found.empty()) return found;
  }
  return {};
}

std::vector<std::int32_t> hf_eos_if_valid(const std::string& folder) {
  try {
    return hf_eos(folder);
  } catch (const Error&) {
    return {};
  }
}

std::int64_t hf_positions(const std::string& folder) {
  const fs::path path = fs::path(folder) / "config.json";
  const json parsed = read_if_there(path);
  const Members config(path.string(), parsed);
  const std::int64_t older = config.integer("n_positions", 0);
  return std::max<std::int64_t>(config.integer("max_position_embeddings", older), 0);
}

}  // namespace ztrain::config
