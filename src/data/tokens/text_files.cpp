#include "data/tokens/text_files.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string_view>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "data/tokens/first_bytes.hpp"
#include "data/tokens/token_source.hpp"
#include "files/file.hpp"
#include "files/input_file.hpp"

namespace ztrain::data {
namespace {

namespace fs = std::filesystem;

/// How tools/prepare_data.py treats a kind of file.
enum class Way : std::uint8_t { as_it_is, as_raw_ids_first, unpacked_first, never };

struct KindRow {
  std::array<std::string_view, 3> endings;  ///< "": no ending
  const char* what;
  Way way;
  const char* unpack = "";       ///< command that unpacks it
  std::string_view signature{};  ///< its first bytes; "": they are not compared
};
constexpr std::array kind_rows{
    KindRow{{".jsonl", ".ndjson", ".json"}, "holds records (JSON)", Way::as_it_is},
    KindRow{{".parquet"}, "is a Parquet table", Way::as_it_is, "", parquet_signature},
    KindRow{{".arrow", ".feather"}, "is an Arrow table", Way::as_it_is, "", arrow_signature},
    KindRow{{".safetensors"}, "holds weights (model.from takes their folder)", Way::never},
    KindRow{{".pt", ".pth"}, "holds weights or objects of PyTorch", Way::never},
    KindRow{{".npy"}, "is an array of NumPy", Way::as_raw_ids_first, "", numpy_signature},
    KindRow{{".gz"}, "is packed", Way::unpacked_first, "gzip -dk"},
    KindRow{{".zst"}, "is packed", Way::unpacked_first, "zstd -d"},
    KindRow{{".xz"}, "is packed", Way::unpacked_first, "xz -dk"},
    KindRow{{".bz2"}, "is packed", Way::unpacked_first, "bzip2 -dk"},
    KindRow{{".zip"}, "is an archive", Way::unpacked_first, "unzip"},
    KindRow{{".tar", ".tgz"}, "is an archive", Way::unpacked_first, "tar -xf"}};
constexpr KindRow packed_records{{}, "holds packed records", Way::as_it_is};
constexpr std::array packings{".gz", ".zst", ".xz", ".bz2"};

/// Returns the path without the ending of a packing.
fs::path unpacked_name(const fs::path& path) {
  const bool packed = std::ranges::find(packings, path.extension()) != packings.end();
  return packed ? fs::path(path).replace_extension() : path;
}

std::string beginning_of(const std::string& path, const std::string& key) {
  std::string bytes(4096, '\0');
  const Descriptor file(open_file(path, O_RDONLY, key));
  const std::int64_t n = read_some(file, bytes.data(), std::ssize(bytes), 0);
  bytes.resize(static_cast<std::size_t>(std::max<std::int64_t>(n, 0)));
  return bytes;
}

/// Returns `word` as a shell takes it.
std::string quoted(const std::string& word) {
  const bool plain = word.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                         "_-./+:,@%") == std::string::npos;
  if (plain) return word;
  std::string text = "'";
  for (const char c : printable(word)) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

/// Returns the command line that makes tokens of the file for this model.
std::string line_for(const fs::path& file, const Reader& reader) {
  const fs::path stem = unpacked_name(file).replace_extension();
  const bool bytes = reader.vocab_size == text_vocab || (reader.vocab_size == 0 && reader.model.empty());
  const std::string tokenizer = bytes                  ? "bytes"
                                : reader.model.empty() ? "FOLDER_OF_THE_MODEL"
                                                       : quoted(reader.model);
  return fmt::format("`tools/prepare_data.py {} --tokenizer {} --output {}`", quoted(file), tokenizer,
                     quoted(stem.string() + ".h5"));
}

std::string advice(const fs::path& file, const KindRow& kind, const Reader& reader) {
  if (kind.way == Way::unpacked_first)
    return fmt::format("unpack it with `{} {}`, and give what that makes", kind.unpack, quoted(file));
  if (kind.way == Way::never)
    return "data are text, tokens (.bin) or what tools/prepare_data.py writes (.h5)";
  if (kind.way == Way::as_raw_ids_first)
    return fmt::format(
        "write its ids alone with `python3 -c 'import sys, numpy; "
        "numpy.load(sys.argv[1]).astype(\"uint32\").tofile(sys.argv[2])' {} {}`, and give that file",
        quoted(file), quoted(fs::path(file).replace_extension(".bin")));
  return fmt::format("make tokens of it with {}, and give that file", line_for(file, reader));
}

/// Returns the kind of a file by its name in small letters; null if it may be text.
const KindRow* kind_of_name(const fs::path& path) {
  const std::string name = path.string();
  const auto* row = std::find_if(kind_rows.begin(), kind_rows.end(), [&](const KindRow& kind) {
    return std::ranges::any_of(
        kind.endings, [&](std::string_view ending) { return !ending.empty() && name.ends_with(ending); });
  });
  return row == kind_rows.end() ? nullptr : row;
}

const KindRow* kind_of(const std::string& path) {
  std::string name = fs::path(path).filename();
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  const fs::path unpacked = unpacked_name(name);
  if (unpacked == name) return kind_of_name(name);
  const KindRow* inside = kind_of_name(unpacked);
  return inside != nullptr && inside->way == Way::as_it_is ? &packed_records : kind_of_name(name);
}

void require_kind(const std::string& path, const Reader& reader, const std::string& key) {
  const KindRow* kind = kind_of(path);
  if (kind == nullptr) return;
  const InputFile file(path);
  REQUIRE(kind->signature.empty() || begins_with(file, kind->signature),
          "{}: '{}' {} by its name and not by its first bytes: say what it is with data.format, such as "
          "\"bin-uint{}\" for raw ids",
          key, printable(path), kind->what, 8 * likely_width(file, reader.vocab_size));
  fail("{}: '{}' {}, and is no text: {}", key, printable(path), kind->what, advice(path, *kind, reader));
}

}  // namespace

std::string note_on_records(const std::vector<std::string>& files, const Reader& reader) {
  for (const std::string& path : files)
    if (const KindRow* kind = kind_of(path); kind != nullptr && kind->way == Way::as_it_is)
      return fmt::format(
          "warning: '{}' {}, and data.format = \"text\" trains on all of its bytes, names and braces too; "
          "for what the records say {}",
          printable(path), kind->what, advice(path, *kind, reader));
  return "";
}

void require_unpacked(const std::vector<std::string>& files, const std::string& key) {
  for (const std::string& path : files)
    if (const KindRow* kind = kind_of(path); kind != nullptr && kind->way == Way::unpacked_first)
      fail("{}: '{}' {}: {}", key, printable(path), kind->what, advice(path, *kind, {}));
}

void require_text(const std::vector<std::string>& files, bool sure, const Reader& reader,
                  const std::string& key) {
  for (const std::string& path : files) {
    if (!sure) require_kind(path, reader, key);
    const std::string bytes = beginning_of(path, key);
    utf8_text(bytes, fmt::format("{}: '{}'", key, printable(path)));
    REQUIRE(bytes.find('\0') == bytes.npos, "{}: '{}' is no text: it has zero bytes; {}{}", key,
            printable(path), advice(path, {{}, "", Way::never}, reader),
            sure ? "" : " (data.format says what a file without such a name is)");
  }
  REQUIRE(
      reader.vocab_size == 0 || reader.vocab_size == text_vocab,
      "{}: '{}' is text, which is read as bytes, and the model has a vocabulary of {} instead of {}: make "
      "tokens of it with {}, and give that file",
      key, printable(files.front()), reader.vocab_size, text_vocab, line_for(files.front(), reader));
}

}  // namespace ztrain::data
