#include "safetensors_mutation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "bytes.hpp"
#include "json_mutation.hpp"

namespace ztrain::damaged_files {
namespace {

using nlohmann::json;

std::uint64_t length_of(const std::string& bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), std::min(bytes.size(), sizeof length));
  return length;
}

struct Span {
  std::uint64_t begin, end;
};

/// Of one tensor of a header; throws json::exception where a member is not what it must be.
Span span_of(const json& tensor, std::string& wrong) {
  static const std::map<std::string, unsigned> sizes{{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2},
                                                     {"I64", 8}, {"I32", 4}, {"I16", 2}, {"I8", 1},
                                                     {"U8", 1},  {"BOOL", 1}};
  __extension__ unsigned __int128 bytes = 0;
  const auto size = sizes.find(tensor.at("dtype").get<std::string>());
  if (size == sizes.end())
    wrong = "an unknown dtype";
  else
    bytes = size->second;
  for (const json& dim : tensor.at("shape")) {
    if (!dim.is_number_unsigned()) wrong = "a dim that is no whole number";
    bytes *= dim.get<std::uint64_t>();
    if (bytes > UINT64_MAX / 2) wrong = "a shape of more bytes than there are", bytes = 0;
  }
  const json& offsets = tensor.at("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    wrong = "offsets that are no two whole numbers";
    return {0, 0};
  }
  const Span span{offsets[0], offsets[1]};
  if (span.end < span.begin || span.end - span.begin != static_cast<std::uint64_t>(bytes))
    wrong = "offsets that are not as far apart as the shape says";
  return span;
}

}  // namespace

std::string damage_safetensors(const std::filesystem::path& path, Random& random) {
  std::string bytes = read_bytes(path);
  if (bytes.size() < 8) return path.filename().string() + ": has no header any more";
  const std::size_t length = std::min<std::size_t>(length_of(bytes), bytes.size() - 8);
  std::string header = bytes.substr(8, length), what;
  const std::string body = bytes.substr(8 + length);
  if (random.one_in(4)) {
    what = damage(bytes, random);
    write_bytes(path, bytes);
    return fmt::format("{}: {}", path.filename().string(), what);
  }
  what = random.one_in(4) ? damage(header, random) : damage_json(header, random);
  std::uint64_t said = header.size();
  if (random.one_in(8)) said += random.below(3) - 1;
  std::string start(8, '\0');
  std::memcpy(start.data(), &said, 8);
  write_bytes(path, start + header + body);
  return fmt::format("{}: header of {} bytes: {}", path.filename().string(), said, what);
}

std::string wrong_in_safetensors(const std::filesystem::path& path) {
  const std::string bytes = read_bytes(path);
  if (bytes.size() < 8 || length_of(bytes) > bytes.size() - 8) return "a header that is longer than the file";
  const std::uint64_t length = length_of(bytes), data = bytes.size() - 8 - length;
  std::string wrong;
  std::vector<Span> spans;
  try {
    const json header = json::parse(bytes.substr(8, length));
    for (const auto& [name, tensor] : header.items())
      if (name != "__metadata__") spans.push_back(span_of(tensor, wrong));
  } catch (const json::exception& e) {
    return e.what();
  }
  std::ranges::sort(spans, {}, [](const Span& s) { return std::pair(s.begin, s.end); });
  std::uint64_t end = 0;
  for (const Span& span : spans) {
    if (span.begin != end) wrong = "tensors that overlap or leave gaps";
    end = span.end;
  }
  if (end != data && wrong.empty()) wrong = fmt::format("{} bytes of tensors in {} bytes of data", end, data);
  return wrong;
}

}  // namespace ztrain::damaged_files
