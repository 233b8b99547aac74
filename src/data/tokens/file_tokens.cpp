#include "data/tokens/file_tokens.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "data/tokens/first_bytes.hpp"

namespace ztrain::data {
namespace {

constexpr std::int64_t header_bytes = 1024;

/// Headers of files that llm.c's data scripts write.
struct HeaderRow {
  std::int32_t magic, version;
  int width;
  std::int64_t vocab;
};
constexpr std::array header_rows{HeaderRow{20240520, 1, 2, 50257}, HeaderRow{20240801, 7, 4, 128256}};

template <class T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

std::vector<std::byte> bytes_of(const InputFile& file, std::int64_t offset, std::int64_t bytes) {
  std::vector<std::byte> found(static_cast<std::size_t>(bytes));
  file.read(offset, bytes, found.data());
  return found;
}

std::int32_t header_word(const InputFile& file, std::int64_t number) {
  std::int32_t word = 0;
  file.read(number * std::int64_t{sizeof word}, sizeof word, &word);
  return word;
}

const HeaderRow* header_of(const InputFile& file) {
  if (file.size() < std::int64_t{sizeof(std::int32_t)}) return nullptr;
  const std::int32_t magic = header_word(file, 0);
  for (const auto& row : header_rows) {
    if (row.magic == magic) return &row;
  }
  return nullptr;
}

/// Signatures of files that are not tokens, and what is to be done with them.
struct ForeignRow {
  std::string_view signature;
  const char *what, *advice;
};
constexpr std::array foreign_rows{
    ForeignRow{hdf5_signature, "HDF5", "give it a name that ends in .h5, and leave data.format out"},
    ForeignRow{numpy_signature, "an array of NumPy",
               "write its ids alone (NumPy: ids.astype(\"uint32\").tofile(...))"}};

void require_raw(const InputFile& file, const std::string& key) {
  for (const ForeignRow& row : foreign_rows)
    REQUIRE(!begins_with(file, row.signature), "{}: '{}' is {}, and would be read as raw ids: {}", key,
            file.path(), row.what, row.advice);
}

BinaryLayout with_header(const InputFile& file, const HeaderRow& row, const std::string& key) {
  const std::int64_t bytes = file.size();
  REQUIRE(bytes >= header_bytes,
          "{}: '{}' is truncated: it starts like a token file with a header of {} bytes, but has {}", key,
          file.path(), header_bytes, bytes);
  const std::int32_t version = header_word(file, 1), tokens = header_word(file, 2);
  REQUIRE(version == row.version, "{}: '{}' is a token file of magic {} and version {}; version {} is known",
          key, file.path(), row.magic, version, row.version);
  const std::int64_t expected = header_bytes + std::int64_t{tokens} * row.width;
  REQUIRE(bytes >= expected,
          "{}: '{}' is truncated: its header promises {} tokens ({} bytes), but it has {} bytes", key,
          file.path(), tokens, expected, bytes);
  REQUIRE(bytes == expected,
          "{}: '{}' is damaged: its header promises {} tokens ({} bytes), but it has {} bytes", key,
          file.path(), tokens, expected, bytes);
  return {header_bytes, row.width, tokens, row.vocab};
}

/// Reads ids of 8 bytes, block by block. An id that 32 bits cannot hold becomes the nearest that they can,
/// which no vocabulary has.
template <class T>
void read_wide_ids(const InputFile& file, std::int64_t offset, std::int64_t count, std::int32_t* out) {
  constexpr T least = std::numeric_limits<std::int32_t>::min() * std::is_signed_v<T>,
              most = std::numeric_limits<std::int32_t>::max();
  std::vector<T> block(static_cast<std::size_t>(std::min<std::int64_t>(count, 1 << 14)));
  for (; count > 0; count -= std::ssize(block), offset += std::ssize(block) * std::int64_t{sizeof(T)}) {
    block.resize(static_cast<std::size_t>(std::min(count, std::ssize(block))));
    file.read(offset, std::ssize(block) * std::int64_t{sizeof(T)}, block.data());
    for (const T id : block) *out++ = static_cast<std::int32_t>(std::clamp(id, least, most));
  }
}

/// Widens one id of 1 or 2 bytes.
std::int32_t narrow_id(const std::byte* from, const BinaryLayout& layout) {
  if (layout.width == 1) return layout.has_sign ? load<std::int8_t>(from) : load<std::uint8_t>(from);
  return layout.has_sign ? load<std::int16_t>(from) : load<std::uint16_t>(from);
}

/// Reads ids from `offset` on. Narrow ids are read into the end of out and widened from its beginning, so
/// each is read before it is written over.
void read_ids(const InputFile& file, std::int64_t offset, const BinaryLayout& layout, std::int64_t count,
              std::int32_t* out) {
  const std::int64_t width = layout.width, bytes = count * width, room = count * std::int64_t{sizeof *out};
  if (width == 8)
    return layout.has_sign ? read_wide_ids<std::int64_t>(file, offset, count, out)
                           : read_wide_ids<std::uint64_t>(file, offset, count, out);
  const std::byte* const from = reinterpret_cast<std::byte*>(out) + room - bytes;
  file.read(offset, bytes, reinterpret_cast<std::byte*>(out) + room - bytes);
  if (width < 4)
    for (std::int64_t i = 0; i < count; ++i) out[i] = narrow_id(from + width * i, layout);
}

/// Hashes the tokens' bytes. Of a file longer than 64 KiB, hashes 16 evenly spaced samples of 4 KiB.
std::uint64_t hash_of_samples(const InputFile& file, std::int64_t begin) {
  constexpr std::int64_t samples = 16, length = 4096;
  const std::int64_t size = file.size() - begin;
  const auto hash_at = [&](std::int64_t offset, std::int64_t bytes, std::uint64_t before) {
    const std::vector<std::byte> sample = bytes_of(file, offset, bytes);
    return hash_bytes(sample.data(), sample.size(), before);
  };
  if (size <= samples * length) return hash_at(begin, size, 0);
  std::uint64_t hash = 0;
  for (std::int64_t i = 0; i < samples; ++i)
    hash = hash_at(begin + (size - length) / (samples - 1) * i, length, hash);
  return hash;
}

/// Returns the layout of a .bin file. format is "auto", "bin-uint16" or "bin-uint32". For vocab_size see
/// likely_width.
BinaryLayout binary_layout(const InputFile& file, const std::string& format, std::int64_t vocab_size,
                           const std::string& key) {
  require_raw(file, key);
  const HeaderRow* header = header_of(file);
  const bool fits =
      header != nullptr && (format == "auto" || format == (header->width == 2 ? "bin-uint16" : "bin-uint32"));
  if (fits) return with_header(file, *header, key);
  REQUIRE(header == nullptr, "{}: data.format = \"{}\", but the header of '{}' says uint{}", key, format,
          file.path(), 8 * header->width);
  const int width = format == "bin-uint32" ? 4 : format == "bin-uint16" ? 2 : likely_width(file, vocab_size);
  const std::int64_t bytes = file.size();
  REQUIRE(bytes % width == 0,
          "{}: '{}' is truncated: its {} bytes are not a multiple of {}, the bytes of one token", key,
          file.path(), bytes, width);
  require_width(file, width, vocab_size, key);
  return {0, width, bytes / width, 0};
}

}  // namespace

std::unique_ptr<TokenSource> FileTokens::text(const std::vector<std::string>& files, const std::string& key) {
  auto source = std::make_unique<FileTokens>();
  source->separated_ = true;
  for (const auto& path : files) {
    InputFile file(path);
    const std::int64_t bytes = file.size();
    if (bytes > 0) source->add(std::move(file), {0, 1, bytes, text_vocab});
  }
  REQUIRE(source->size_ > 0, "{}: all files are empty ('{}'{})", key, files.front(),
          files.size() > 1 ? ", ..." : "");
  return source;
}

std::unique_ptr<TokenSource> FileTokens::binary(const std::vector<std::string>& files,
                                                const std::string& format, std::int64_t vocab_size,
                                                const std::string& key) {
  auto source = std::make_unique<FileTokens>();
  for (const auto& path : files) {
    InputFile file(path);
    const BinaryLayout layout = binary_layout(file, format, vocab_size, key);
    REQUIRE(layout.tokens > 0, "{}: '{}' holds no tokens", key, path);
    source->add(std::move(file), layout);
  }
  return source;
}

std::unique_ptr<FileTokens> FileTokens::of(std::vector<std::pair<InputFile, BinaryLayout>> files) {
  auto source = std::make_unique<FileTokens>();
  for (auto& [file, layout] : files) source->add(std::move(file), layout);
  return source;
}

void FileTokens::add(InputFile file, const BinaryLayout& layout) {
  if (separated_ && !parts_.empty()) ++size_;
  parts_.push_back({std::move(file), layout, size_});
  size_ += layout.tokens;
}

/// Visits the part of a range that each file holds, as read(file, byte, layout, tokens), and what lies
/// between two files, as separator().
template <class Read, class Separator>
void FileTokens::each_part(std::int64_t begin, std::int64_t count, const Read& read,
                           const Separator& separator) const {
  require_inside(begin, count);
  for (std::size_t p = count > 0 ? part_of(parts_, begin) : 0; count > 0; ++p) {
    const auto& [file, layout, first] = parts_[p];
    const std::int64_t inside = begin - first, here = std::min(count, layout.tokens - inside);
    if (here > 0) {
      read(file, layout.header_bytes + inside * layout.width, layout, here);
      begin += here, count -= here;
    }
    if (separated_ && count > 0) {
      separator();
      ++begin, --count;
    }
  }
}

void FileTokens::read(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
  each_part(
      begin, count,
      [&](const InputFile& file, std::int64_t byte, const BinaryLayout& layout, std::int64_t tokens) {
        read_ids(file, byte, layout, tokens, out);
        out += tokens;
      },
      [&] { *out++ = text_separator; });
}

void FileTokens::read_ahead(std::int64_t begin, std::int64_t count) const {
  each_part(
      begin, count,
      [](const InputFile& file, std::int64_t byte, const BinaryLayout& layout, std::int64_t tokens) {
        file.read_ahead(byte, tokens * layout.width);
      },
      [] {});
}

std::uint64_t FileTokens::identity() const {
  std::uint64_t hash = 0;
  for (const auto& part : parts_)
    hash = identity_of(hash, part.file.path(), part.layout.tokens,
                       hash_of_samples(part.file, part.layout.header_bytes));
  return hash;
}

std::int64_t FileTokens::known_vocab() const {
  std::int64_t vocab = 0;
  for (const auto& part : parts_) {
    if (part.layout.known_vocab == 0) return 0;
    vocab = std::max(vocab, part.layout.known_vocab);
  }
  return vocab;
}

NarrowIds FileTokens::narrow_ids() const {
  NarrowIds narrow;
  for (const Part& part : parts_) {
    const BinaryLayout& layout = part.layout;
    if (separated_ || layout.width > 2) continue;
    const std::int64_t limit = std::int64_t{1} << (8 * layout.width - (layout.has_sign ? 1 : 0));
    if (narrow.limit == 0 || limit < narrow.limit) narrow = {part.file.path(), limit};
  }
  return narrow;
}

Tokenizer FileTokens::tokenizer() const {
  Tokenizer tokenizer;
  if (separated_) tokenizer.ends = {text_separator};
  return tokenizer;
}

Place FileTokens::locate(std::int64_t position) const {
  const Part& part = parts_[part_of(parts_, position)];
  return {part.file.path(), position - part.begin};
}

}  // namespace ztrain::data
