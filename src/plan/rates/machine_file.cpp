// Reads machine files: TOML, a section for each kind of rate. A file says with `base` of which other one it
// takes what it does not give: a file beside it, or a preset. [cluster] has keys of the deck's section. Times
// are in microseconds, rates of measured kernels in GB/s and TFLOP/s. [ranks_on_node.N] has sections of its
// own, which hold with N ranks at work on a node; the one whose N is nearest goes before the others.

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>

#include "base/error.hpp"
#include "config/fields/presets.hpp"
#include "config/fields/value.hpp"
#include "files/file.hpp"
#include "plan/rates/preset_files.hpp"
#include "plan/rates/rates.hpp"

namespace ztrain::plan {
namespace {

constexpr double microsecond = 1e-6;
constexpr std::int64_t most_file_bytes = 1 << 24;  ///< of a machine file
constexpr int most_bases = 8;

struct NumberRow {
  const char *section, *key;
  double unit, least, most;
  std::function<void(Rates&, double)> set;
};

const std::vector<NumberRow>& number_rows() {
  static const std::vector<NumberRow> rows{
      {"products", "efficiency", 1, 1e-6, 1, [](Rates& r, double x) { r.products.efficiency = x; }},
      {"products", "fp8_efficiency", 1, 1e-6, 1, [](Rates& r, double x) { r.products.fp8_efficiency = x; }},
      {"products", "fixed", microsecond, 0, 1e9, [](Rates& r, double x) { r.products.fixed = x; }},
      {"products", "tile_rows", 1, 1, 4096,
       [](Rates& r, double x) { r.products.tile_rows = static_cast<std::int64_t>(x); }},
      {"products", "tile_columns", 1, 4, 4096,
       [](Rates& r, double x) { r.products.tile_columns = static_cast<std::int64_t>(x); }},
      {"products", "multiprocessors", 1, 0, 65536,
       [](Rates& r, double x) { r.products.multiprocessors = static_cast<std::int64_t>(x); }},
      {"attention", "forward", 1, 1e-6, 1, [](Rates& r, double x) { r.attention.forward = x; }},
      {"attention", "backward", 1, 1e-6, 1, [](Rates& r, double x) { r.attention.backward = x; }},
      {"attention", "half_length", 1, 0, 1e9, [](Rates& r, double x) { r.attention.half_length = x; }},
      {"attention", "narrow", 1, 1e-6, 1, [](Rates& r, double x) { r.attention.narrow = x; }},
      {"memory", "efficiency", 1, 1e-6, 1, [](Rates& r, double x) { r.memory.efficiency = x; }},
      {"memory", "fixed", microsecond, 0, 1e9, [](Rates& r, double x) { r.memory.fixed = x; }},
      {"memory", "passes", 1, 1e-6, 100, [](Rates& r, double x) { r.memory.passes = x; }},
      {"node", "share", 1, 1e-6, 1, [](Rates& r, double x) { r.node.share = x; }},
      {"node", "start", microsecond, 0, 1e9, [](Rates& r, double x) { r.node.start = x; }},
      {"node", "hop", microsecond, 0, 1e9, [](Rates& r, double x) { r.node.hop = x; }},
      {"node", "tree_hop", microsecond, 0, 1e9, [](Rates& r, double x) { r.node.tree_hop = x; }},
      {"network", "share", 1, 1e-6, 1, [](Rates& r, double x) { r.network.share = x; }},
      {"network", "start", microsecond, 0, 1e9, [](Rates& r, double x) { r.network.start = x; }},
      {"network", "hop", microsecond, 0, 1e9, [](Rates& r, double x) { r.network.hop = x; }},
      {"network", "tree_hop", microsecond, 0, 1e9, [](Rates& r, double x) { r.network.tree_hop = x; }},
      {"nodes", "hours_between_failures", 3600, 1e-3, 1e9,
       [](Rates& r, double x) { r.nodes.between_failures = x; }},
      {"nodes", "write", 1e9, 1e-3, 1e9, [](Rates& r, double x) { r.nodes.write = x; }},
      {"nodes", "watts", 1, 0, 1e9, [](Rates& r, double x) { r.nodes.watts = x; }},
      {"ranks", "beside_collectives", 1, 1e-6, 1, [](Rates& r, double x) { r.beside_collectives = x; }},
      {"ranks", "jitter", 1, 0, 1, [](Rates& r, double x) { r.jitter = x; }},
      {"ranks", "cores", 1, 0, 65536, [](Rates& r, double x) { r.cores = x; }},
  };
  return rows;
}

double number_of(const toml::node& node, const std::string& file, const std::string& key, double least,
                 double most) {
  const auto value = node.value<double>();
  REQUIRE(value && *value >= least && *value <= most, "{}: {} is to be a number from {:g} to {:g}", file, key,
          least, most);
  return *value;
}

class MachineFile {
 public:
  MachineFile(Rates& rates, std::string file, int ranks_on_node)
      : rates_(rates), file_(std::move(file)), ranks_on_node_(ranks_on_node) {}

  void read(const toml::table& table) {
    REQUIRE(!table.empty(),
            "{}: the file is empty, as a calibration leaves it that was stopped: make it anew", file_);
    for (const auto& [name, node] : table) {
      const std::string section(name.str());
      if (section == "base" || section == "sections" || (section == "ranks_on_node" && node.is_table()))
        continue;
      if (section == "cluster" && node.is_table()) {
        for (const auto& [key, value] : *node.as_table())
          rates_.cluster.push_back(fmt::format("cluster.{}={}", key.str(), config::source_text(value)));
        continue;
      }
      if (const auto* rows = node.as_array(); rows != nullptr && section == "product") {
        for (const toml::node& row : *rows) read_product(row);
        continue;
      }
      const toml::table* keys = node.as_table();
      REQUIRE(keys != nullptr, "{}: {} is to be a section: legal are {}", file_, section, sections());
      if (section == "kernel")
        for (const auto& [type, kernel] : *keys) read_kernels(std::string(type.str()), kernel);
      else
        for (const auto& [key, value] : *keys) read_number(section, std::string(key.str()), value);
    }
    if (const toml::table* parts = table["ranks_on_node"].as_table()) read_parts(*parts);
    if (const toml::node* sections = table.get("sections"))
      REQUIRE(sections->value<std::int64_t>() == found_,
              "{}: it has {} sections of kernels and products, and says sections = {}: "
              "it was cut, or edited",
              file_, found_, config::source_text(*sections));
  }

 private:
  static std::string sections() {
    return "cluster, products, attention, memory, node, network, nodes, ranks, kernel.TYPE, ranks_on_node.N, "
           "and "
           "[[product]]";
  }

  void read_number(const std::string& section, const std::string& key, const toml::node& value) {
    std::vector<std::string> known;
    for (const NumberRow& row : number_rows()) {
      if (section != row.section) continue;
      known.emplace_back(row.key);
      if (key == row.key)
        return row.set(rates_, row.unit * number_of(value, file_, section + "." + key, row.least, row.most));
    }
    REQUIRE(!known.empty(), "{}: there is no section [{}]: legal are {}", file_, section, sections());
    fail("{}: [{}] has no key {}: legal are {}", file_, section, key, fmt::join(known, ", "));
  }

  double positive(const toml::table& row, const std::string& where, const char* key, double otherwise) {
    const toml::node* node = row.get(key);
    if (node == nullptr) {
      REQUIRE(otherwise >= 0, "{}: {} has no key {}", file_, where, key);
      return otherwise;
    }
    return number_of(*node, file_, where + "." + key, 0, 1e18);
  }

  void only(const toml::table& row, const std::string& where, std::vector<std::string_view> known) const {
    for (const auto& [key, value] : row)
      REQUIRE(std::ranges::count(known, key.str()) > 0, "{}: {} has no key {}: legal are {}", file_, where,
              key.str(), fmt::join(known, ", "));
  }

  /// Checks all parts, and takes the nearest.
  void read_parts(const toml::table& parts) {
    const toml::table* nearest = nullptr;
    std::int64_t found = found_;
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [key, node] : parts) {
      const std::string number(key.str()), where = fmt::format("{}, ranks_on_node.{}", file_, number);
      const int ranks = std::atoi(number.c_str());
      REQUIRE(ranks > 0 && std::to_string(ranks) == number && node.is_table(),
              "{} is to be a section whose name is a number of ranks", where);
      const toml::table& part = *node.as_table();
      only(part, "ranks_on_node." + number,
           {"products", "attention", "memory", "node", "network", "ranks", "kernel", "product"});
      Rates unused;
      MachineFile checked(unused, where, 0);
      checked.read(part);
      found += checked.found_;
      const double apart = std::abs(std::log(static_cast<double>(ranks) / std::max(1, ranks_on_node_)));
      if (ranks_on_node_ > 0 && apart < least) least = apart, nearest = &part;
    }
    if (nearest != nullptr) read(*nearest);
    found_ = found;
  }

  /// [kernel.TYPE], or [kernel.TYPE.DTYPE].
  void read_kernels(const std::string& type, const toml::node& node) {
    const toml::table* row = node.as_table();
    REQUIRE(row != nullptr, "{}: kernel.{} is to be a section", file_, type);
    toml::table own;  // of any dtype
    for (const auto& [dtype, part] : *row) {
      if (!part.is_table()) {
        own.insert(dtype.str(), part);
        continue;
      }
      dtype_from(dtype.str());
      read_kernel(fmt::format("{}.{}", type, dtype.str()), *part.as_table());
    }
    if (!own.empty() || row->empty()) read_kernel(type, own);
  }

  void read_kernel(const std::string& type, const toml::table& table) {
    ++found_;
    const std::string where = "kernel." + type;
    const toml::table* row = &table;
    only(*row, where, {"fixed", "bandwidth", "rate", "hop"});
    const double bandwidth = positive(*row, where, "bandwidth", 0), rate = positive(*row, where, "rate", 0);
    rates_.kernels[type] = {positive(*row, where, "fixed", 0) * microsecond,
                            bandwidth > 0 ? 1 / (bandwidth * 1e9) : 0, rate > 0 ? 1 / (rate * 1e12) : 0,
                            positive(*row, where, "hop", 0) * microsecond};
  }

  void read_product(const toml::node& node) {
    ++found_;
    const toml::table* row = node.as_table();
    REQUIRE(row != nullptr, "{}: [[product]] is to be a list of sections", file_);
    only(*row, "product", {"dtype", "rows", "columns", "depth", "rate"});
    const auto dtype =
        row->get("dtype") == nullptr ? std::string() : row->get("dtype")->value_or(std::string());
    const auto whole = [&](const char* key) {
      return std::max<std::int64_t>(1, static_cast<std::int64_t>(positive(*row, "product", key, -1)));
    };
    const double rate = positive(*row, "product", "rate", -1);
    REQUIRE(rate > 0, "{}: product.rate is to be above 0", file_);
    rates_.measured_products[dtype_from(dtype)].push_back(
        {whole("rows"), whole("columns"), whole("depth"), rate * 1e12});
  }

  Rates& rates_;
  std::string file_;
  int ranks_on_node_;
  std::int64_t found_ = 0;  ///< sections of kernels and products
};

void read_into(Rates& rates, const std::string& name, const std::filesystem::path& folder, int ranks_on_node,
               int depth) {
  REQUIRE(depth < most_bases, "{}: more than {} files build upon each other by `base`", name, most_bases);
  const auto preset = std::ranges::find(preset_files, name, &PresetFile::name);
  const bool is_preset = preset != std::end(preset_files);
  const std::filesystem::path path = folder / name;
  const std::string shown = is_preset ? "machine " + name : path.string();
  const toml::table table = config::parse_toml(
      is_preset ? std::string(preset->text) : read_file(path.string(), most_file_bytes, "cluster.machine"),
      shown);
  if (const toml::node* base = table.get("base")) {
    REQUIRE(base->is_string(), "{}: base is to be the name of a preset or of a file", shown);
    read_into(rates, *base->value<std::string>(), path.parent_path(), ranks_on_node, depth + 1);
  }
  if (is_preset && std::ranges::count(config::cluster_preset_names(), name) > 0)
    rates.cluster = {"cluster.preset=" + name};
  MachineFile(rates, shown, ranks_on_node).read(table);
  rates.sources.insert(rates.sources.begin(), is_preset ? name : path.string());
}

}  // namespace

Rates read_rates(const std::string& name, int ranks_on_node) {
  Rates rates;
  if (!name.empty()) read_into(rates, name, {}, ranks_on_node, 0);
  return rates;
}

std::vector<std::string> machine_presets() {
  std::vector<std::string> names;
  for (const PresetFile& file : preset_files) names.emplace_back(file.name);
  return names;
}

}  // namespace ztrain::plan
