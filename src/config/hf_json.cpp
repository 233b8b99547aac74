#include "config/hf_json.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>

namespace ztrain::config {

namespace fs = std::filesystem;
using nlohmann::json;

json read_json(const std::string& path, std::int64_t largest) {
  std::ifstream file(path, std::ios::binary);
  std::error_code unknown;
  REQUIRE(file.good() && fs::is_regular_file(path, unknown),
          "cannot read '{}': no such file, or no permission", path);
  REQUIRE(fs::file_size(path) <= static_cast<std::uintmax_t>(largest),
          "{}: has {} bytes; no such file of a model or a checkpoint is above {}", path, fs::file_size(path),
          largest);
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

json read_hf_config(const std::string& path) {
  std::error_code unknown;
  REQUIRE(fs::is_regular_file(path, unknown),
          "model.from: cannot read '{}': no such file, or no permission; give a folder with config.json and "
          "safetensors files",
          path);
  return read_json(path);
}

}  // namespace ztrain::config
