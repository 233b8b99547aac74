#include "files/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/plain_text.hpp"

namespace ztrain {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "bytes are used as they are in the file");

struct TypeRow {
  std::string_view name;
  std::int64_t bytes;
  std::optional<DType> dtype;
};
/// All types of the format that have whole bytes.
constexpr std::array type_rows{
    TypeRow{"F64", 8, DType::f64}, TypeRow{"F32", 4, DType::f32}, TypeRow{"BF16", 2, DType::bf16},
    TypeRow{"F16", 2, DType::f16}, TypeRow{"I64", 8, DType::i64}, TypeRow{"I32", 4, DType::i32},
    TypeRow{"U8", 1, DType::u8},   TypeRow{"I16", 2, {}},         TypeRow{"I8", 1, {}},
    TypeRow{"U64", 8, {}},         TypeRow{"U32", 4, {}},         TypeRow{"U16", 2, {}},
    TypeRow{"BOOL", 1, {}},        TypeRow{"C64", 8, {}},         TypeRow{"F8_E4M3", 1, {}},
    TypeRow{"F8_E5M2", 1, {}},     TypeRow{"F8_E8M0", 1, {}}};

constexpr std::int64_t most_elements = std::int64_t{1} << 58;  ///< bytes of more elements could overflow

/// Returns a name or a text of the file for a message. A hostile file may hold any bytes, of any length.
std::string cut(std::string_view text) {
  return printable(text, 200);
}

json parse_object(std::string_view text, int depth, const std::string& file) {
  json parsed = parse_json(text, file, {.depth = depth, .bytes = largest_safetensors_header});
  REQUIRE(parsed.is_object(), "{}: is not a JSON object", file);
  return parsed;
}

/// Reads an array of whole numbers from 0 on.
std::vector<std::int64_t> numbers(const json& entry, const char* key, const std::string& where) {
  const auto found = entry.find(key);
  REQUIRE(found != entry.end() && found->is_array(), "{}: has no list {}", where, key);
  std::vector<std::int64_t> result;
  for (const json& n : *found) {
    REQUIRE(n.is_number_unsigned() && n.get<std::uint64_t>() <= static_cast<std::uint64_t>(most_elements),
            "{}: {} holds {}, which is no size", where, key, json_text(n).substr(0, 40));
    result.push_back(n.get<std::int64_t>());
  }
  return result;
}

SafeTensor parse_tensor(const std::string& name, const json& entry, std::int64_t data_bytes,
                        const std::string& file) {
  const std::string where = fmt::format("{}: tensor '{}'", file, cut(name));
  REQUIRE(entry.is_object() && entry.contains("dtype") && entry["dtype"].is_string(), "{}: has no dtype",
          where);
  SafeTensor t;
  t.name = name;
  t.dtype_name = entry["dtype"].get<std::string>();
  const auto row = std::ranges::find(type_rows, t.dtype_name, &TypeRow::name);
  REQUIRE(row != type_rows.end(), "{}: has unknown dtype '{}'", where, cut(t.dtype_name));
  t.dtype = row->dtype;
  t.shape = numbers(entry, "shape", where);
  std::int64_t count = 1;
  for (const std::int64_t n : t.shape) {
    REQUIRE(n == 0 || count <= most_elements / n, "{}: shape {} is too large", where,
            cut(to_string(t.shape)));
    count *= n;
  }
  const auto offsets = numbers(entry, "data_offsets", where);
  REQUIRE(offsets.size() == 2 && offsets[0] <= offsets[1], "{}: its data_offsets are no range", where);
  REQUIRE(offsets[1] <= data_bytes, "{}: its bytes end at {} of {}: the file is truncated or damaged", where,
          offsets[1], data_bytes);
  t.begin = offsets[0];
  t.bytes = offsets[1] - offsets[0];
  REQUIRE(count <= most_elements / row->bytes && t.bytes == count * row->bytes,
          "{}: shape {} of {} does not take {} bytes", where, cut(to_string(t.shape)), t.dtype_name, t.bytes);
  return t;
}

/// Sorts by offset, and requires that every byte of the data belongs to one tensor.
void require_contiguous(std::vector<SafeTensor>& tensors, std::int64_t data_bytes, const std::string& file) {
  std::ranges::sort(tensors, {}, [](const SafeTensor& t) { return std::pair(t.begin, t.bytes); });
  std::int64_t end = 0;
  for (const SafeTensor& t : tensors) {
    REQUIRE(t.begin >= end, "{}: the bytes of tensor '{}' overlap those before them", file, cut(t.name));
    REQUIRE(t.begin == end, "{}: bytes {} to {} before tensor '{}' belong to none", file, end, t.begin,
            cut(t.name));
    end += t.bytes;
  }
  REQUIRE(end == data_bytes, "{}: has {} bytes of data and its tensors take {}", file, data_bytes, end);
}

}  // namespace

std::vector<SafeTensor> parse_safetensors(std::string_view header, std::int64_t data_begin,
                                          std::int64_t data_bytes, const std::string& file) {
  REQUIRE(header.starts_with('{'), "{}: is no safetensors file: its header is not a JSON object", file);
  const json parsed = parse_object(header, 3, file);
  std::vector<SafeTensor> tensors;
  for (const auto& [name, entry] : parsed.items()) {
    if (name != "__metadata__") {
      tensors.push_back(parse_tensor(name, entry, data_bytes, file));
      continue;
    }
    REQUIRE(entry.is_object(), "{}: its __metadata__ is no object", file);
    for (const json& value : entry)
      REQUIRE(value.is_string(), "{}: its __metadata__ is not of strings", file);
  }
  require_contiguous(tensors, data_bytes, file);
  for (SafeTensor& t : tensors) t.begin += data_begin;
  return tensors;
}

/// Git LFS puts a small text in the place of each large file until it is fetched.
static void require_no_pointer(const PosixFile& file) {
  constexpr std::string_view pointer = "version https://git-lfs";
  std::string begin(pointer.size(), ' ');
  if (file.size() < std::ssize(begin)) return;
  file.read_at(begin.data(), std::ssize(begin), 0);
  REQUIRE(begin != pointer,
          "{}: holds no weights, but what Git LFS puts in their place: fetch them with `git lfs pull` in its "
          "folder, or download the model with `hf download`",
          file.path().string());
}

std::vector<SafeTensor> read_safetensors(const PosixFile& file) {
  const std::string path = file.path().string();
  const std::int64_t size = file.size();
  std::uint64_t length = 0;
  constexpr std::int64_t start = sizeof length;
  require_no_pointer(file);
  REQUIRE(size >= start, "{}: is no safetensors file: it has {} bytes", path, size);
  file.read_at(&length, start, 0);
  REQUIRE(length <= static_cast<std::uint64_t>(largest_safetensors_header),
          "{}: is no safetensors file: its header would have {} bytes, above the format's {}", path, length,
          largest_safetensors_header);
  const auto bytes = static_cast<std::int64_t>(length);
  REQUIRE(start + bytes <= size, "{}: is truncated: its header has {} bytes and the file {}", path, bytes,
          size);
  std::string header(length, ' ');
  file.read_at(header.data(), bytes, start);
  return parse_safetensors(header, start + bytes, size - start - bytes, path);
}

std::string safetensors_dtype(DType dtype) {
  const auto row = std::ranges::find(type_rows, std::optional(dtype), &TypeRow::dtype);
  REQUIRE(row != type_rows.end(), "safetensors files have no {}", name_of(dtype));
  return std::string(row->name);
}

std::string safetensors_header(std::span<const SafeTensor> tensors) {
  json header{{"__metadata__", {{"format", "pt"}}}};
  std::int64_t end = 0;
  for (const SafeTensor& t : tensors) {
    const std::int64_t begin = end;
    end += t.bytes;
    header[t.name] = {{"dtype", t.dtype_name}, {"shape", t.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = json_text(header);
  text.resize(static_cast<std::size_t>(round_up(std::ssize(text), 8)), ' ');  // aligns the data
  const std::uint64_t length = text.size();
  std::string start(sizeof length, '\0');
  std::memcpy(start.data(), &length, sizeof length);
  return start + text;
}

std::map<std::string, std::string> parse_safetensors_index(std::string_view text, const std::string& file) {
  const json parsed = parse_object(text, 4, file);
  REQUIRE(parsed.contains("weight_map") && parsed["weight_map"].is_object(), "{}: has no weight_map", file);
  std::map<std::string, std::string> file_of;
  for (const auto& [name, entry] : parsed["weight_map"].items()) {
    REQUIRE(entry.is_string(), "{}: weight_map['{}'] is no file name", file, cut(name));
    const auto shard = entry.get<std::string>();
    REQUIRE(shard.ends_with(".safetensors") && shard.find('/') == std::string::npos,
            "{}: weight_map['{}'] = '{}' is no safetensors file beside it", file, cut(name), cut(shard));
    file_of[name] = shard;
  }
  return file_of;
}

std::string safetensors_index(const std::map<std::string, std::string>& file_of, std::int64_t total_bytes) {
  return json_text(json{{"metadata", {{"total_size", total_bytes}}}, {"weight_map", file_of}}, 2) + "\n";
}

}  // namespace ztrain
