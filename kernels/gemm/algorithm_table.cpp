#include "kernels/gemm/algorithm_table.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "files/file.hpp"

namespace ztrain::kernels {

namespace {

using Json = nlohmann::json;

constexpr int format = 1;
constexpr std::int64_t largest_table = 1 << 26;  ///< bytes; some hundred for each product

std::string hex(const AlgorithmBytes& bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::optional<AlgorithmBytes> bytes_of(const std::string& text) {
  AlgorithmBytes bytes{};
  if (text.size() != 2 * bytes.size()) return std::nullopt;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char* const digits = text.data() + 2 * i;
    if (std::from_chars(digits, digits + 2, bytes[i], 16).ptr != digits + 2) return std::nullopt;
  }
  return bytes;
}

std::optional<Algorithm> algorithm_of(const Json& entry) {
  if (!entry.is_object()) return std::nullopt;
  const auto code = entry.find("algorithm"), time = entry.find("microseconds");
  if (code == entry.end() || !code->is_string() || time == entry.end() || !time->is_number())
    return std::nullopt;
  const auto bytes = bytes_of(code->get<std::string>());
  if (!bytes) return std::nullopt;
  return Algorithm{*bytes, time->get<double>()};
}

std::optional<AlgorithmHome> home_of(const Json& section) {
  if (!section.is_object()) return std::nullopt;
  const auto device = section.find("device"), library = section.find("library"),
             driver = section.find("driver"), products = section.find("products");
  const auto end = section.end();
  if (device == end || library == end || driver == end || products == end || !device->is_string() ||
      !library->is_number_integer() || !driver->is_number_integer() || !products->is_object())
    return std::nullopt;
  return AlgorithmHome{device->get<std::string>(), library->get<std::int64_t>(), driver->get<std::int64_t>()};
}

}  // namespace

std::optional<Algorithm> AlgorithmTable::find(const std::string& key) const {
  const auto here = entries_.find(home_);
  if (here == entries_.end()) return std::nullopt;
  const auto entry = here->second.find(key);
  if (entry == here->second.end()) return std::nullopt;
  return entry->second;
}

void AlgorithmTable::record(const std::string& key, const Algorithm& algorithm) {
  entries_[home_].try_emplace(key, algorithm);
}

/// What is there stays, but for what was never measured.
void AlgorithmTable::add(Entries& entries, const std::string& key, const Algorithm& algorithm) {
  const auto [entry, is_new] = entries.try_emplace(key, algorithm);
  if (!is_new && !entry->second.measured()) entry->second = algorithm;
}

void AlgorithmTable::forget_unmeasured() {
  for (auto& [home, entries] : entries_)
    std::erase_if(entries, [](const auto& entry) { return !entry.second.measured(); });
}

std::size_t AlgorithmTable::size() const {
  const auto here = entries_.find(home_);
  return here == entries_.end() ? 0 : here->second.size();
}

void AlgorithmTable::merge(std::string_view text) {
  Json json;
  try {
    json = parse_json(text, "the table", {.bytes = largest_table});
  } catch (const Error&) {
    return;
  }
  if (!json.is_object()) return;
  const auto number = json.find("format"), sections = json.find("devices");
  if (number == json.end() || *number != format || sections == json.end() || !sections->is_array()) return;
  for (const Json& section : *sections) {
    const auto home = home_of(section);
    if (!home) continue;
    for (const auto& [key, entry] : section["products"].items())
      if (const auto algorithm = algorithm_of(entry)) add(entries_[*home], key, *algorithm);
  }
}

std::string AlgorithmTable::to_text() const {
  Json sections = Json::array();
  for (const auto& [home, entries] : entries_) {
    Json products = Json::object();
    for (const auto& [key, algorithm] : entries)
      products[key] = {{"algorithm", hex(algorithm.bytes)}, {"microseconds", algorithm.microseconds}};
    sections.push_back({{"device", home.device},
                        {"library", home.library},
                        {"driver", home.driver},
                        {"products", std::move(products)}});
  }
  return json_text(Json{{"format", format}, {"devices", std::move(sections)}}, 1) + "\n";
}

std::string default_algorithms_file() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::filesystem::path(value ? value : "");
  };
  std::filesystem::path folder = variable("XDG_CACHE_HOME");
  if (folder.empty() && !variable("HOME").empty()) folder = variable("HOME") / ".cache";
  return folder.empty() ? "" : folder / "ztrain" / "algorithms.json";
}

std::string read_algorithms(const std::string& path) {
  try {
    return read_file(path, largest_table);
  } catch (const Error&) {
    return "";  // what it would say is measured again
  }
}

void save_algorithms(const std::string& path, AlgorithmTable& table) {
  AlgorithmTable all(table.home());
  all.merge(read_algorithms(path));
  all.merge(table.to_text());
  table = all;
  all.forget_unmeasured();
  const std::filesystem::path file(path);
  std::error_code error;
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path(), error);
  const std::string partial = fmt::format("{}.{}.tmp", path, getpid());
  std::ofstream out(partial, std::ios::binary);
  out << all.to_text();
  out.close();
  if (out) std::filesystem::rename(partial, file, error);
  const bool written = out && !error;
  if (!written) {
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
  }
  REQUIRE(written,
          "device.algorithms: '{}' cannot be written{}{}; name another file, or make its folder writable",
          path, error ? ": " : "", error ? error.message() : "");
}

namespace {

struct Measured {
  const Candidate* candidate;
  std::vector<double> times;

  double median() const {
    std::vector<double> sorted = times;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

double least(const std::vector<Measured>& all) {
  double best = all.front().median();
  for (const Measured& m : all) best = std::min(best, m.median());
  return best;
}

/// Measures each once more; those that cannot be launched go.
void measure(std::vector<Measured>& all, CandidateTimer& timer) {
  std::erase_if(all, [&](Measured& m) {
    const auto time = timer.microseconds(*m.candidate);
    if (time) m.times.push_back(*time);
    return !time;
  });
}

}  // namespace

std::optional<Algorithm> fastest(std::span<const Candidate> candidates, std::int64_t workspace,
                                 CandidateTimer& timer) {
  constexpr double hopeless = 2, alike = 1.02;
  std::vector<Measured> all;
  for (const Candidate& candidate : candidates)
    if (candidate.workspace <= workspace) all.push_back({&candidate, {}});
  for (int round = 0; round < candidate_rounds; ++round) {
    measure(all, timer);
    if (all.empty()) return std::nullopt;
    if (round > 0) continue;
    const double bound = hopeless * least(all);
    std::erase_if(all, [&](const Measured& m) { return m.median() > bound; });
  }
  const double bound = alike * least(all);
  const auto first =
      std::find_if(all.begin(), all.end(), [&](const Measured& m) { return m.median() <= bound; });
  return Algorithm{first->candidate->bytes, first->median()};
}

}  // namespace ztrain::kernels
