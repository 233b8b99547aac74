#include "config/hf_json.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>

namespace ztrain::config {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t largest_config = 1 << 20;  ///< bytes; real ones are about a thousand

}  // namespace

json read_hf_config(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good() && fs::is_regular_file(path),
          "model.from: cannot read '{}': no such file, or no permission; give a folder with config.json and "
          "safetensors files",
          path);
  REQUIRE(fs::file_size(path) <= static_cast<std::uintmax_t>(largest_config),
          "{}: has {} bytes; no config.json of a model is above {}", path, fs::file_size(path),
          largest_config);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto shallow = [&](int depth, json::parse_event_t, json&) {
    REQUIRE(depth <= 16, "{}: is nested more than 16 deep", path);
    return true;
  };
  try {
    json parsed = json::parse(text, shallow);
    REQUIRE(parsed.is_object(), "{}: is not a JSON object", path);
    return parsed;
  } catch (const json::exception& error) {
    fail("{}: not valid JSON: {}", path, error.what());
  }
}

}  // namespace ztrain::config
