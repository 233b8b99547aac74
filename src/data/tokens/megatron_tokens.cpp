#include "data/tokens/megatron_tokens.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "data/tokens/first_bytes.hpp"
#include "files/file.hpp"

namespace ztrain::data {
namespace {

constexpr std::string_view index_magic{"MMIDIDX\0\0", 9};
constexpr std::string_view older_index_magic{"TNTIDX\0\0", 8};
constexpr std::int64_t index_header_bytes = 34, index_version = 1;

/// Types of ids by their codes. Types that are no integers are left out.
struct IdTypeRow {
  int code, width;
  bool has_sign;
};
constexpr std::array id_type_rows{IdTypeRow{1, 1, false}, IdTypeRow{2, 1, true},  IdTypeRow{3, 2, true},
                                  IdTypeRow{4, 4, true},  IdTypeRow{5, 8, true},  IdTypeRow{8, 2, false},
                                  IdTypeRow{9, 4, false}, IdTypeRow{10, 8, false}};

template <class T>
T number_at(const InputFile& file, std::int64_t byte) {
  T value{};
  file.read(byte, sizeof value, &value);
  return value;
}

/// Reads an array of a file from front to end, with one block of it in memory.
template <class T>
class ArrayStream {
 public:
  ArrayStream(const InputFile& file, std::int64_t byte, std::int64_t count)
      : file_(file), byte_(byte), left_(count) {}

  /// Must not be called more than `count` times.
  T next() {
    if (at_ == block_.size()) {
      constexpr std::int64_t most = 1 << 16;
      block_.resize(static_cast<std::size_t>(std::min(most, left_)));
      const auto bytes = static_cast<std::int64_t>(block_.size() * sizeof(T));
      file_.read(byte_, bytes, block_.data());
      byte_ += bytes, left_ -= std::ssize(block_), at_ = 0;
    }
    return block_[at_++];
  }

 private:
  const InputFile& file_;
  std::int64_t byte_, left_;
  std::vector<T> block_;
  std::size_t at_ = 0;
};

}  // namespace

std::string megatron_index_of(const std::string& path) {
  return std::filesystem::path(path).replace_extension(".idx").string();
}

MegatronTokens::MegatronTokens(const std::vector<std::string>& files, const std::string& key) : key_(key) {
  std::vector<std::pair<InputFile, BinaryLayout>> parts;
  for (const std::string& path : files) {
    Index index = open(path);
    InputFile bin(path);
    require_bin(bin, index);
    index.tokens = bin.size() / index.width;
    parts.emplace_back(std::move(bin), BinaryLayout{0, index.width, index.tokens, 0, index.has_sign});
    indices_.push_back(std::move(index));
  }
  ids_ = FileTokens::of(std::move(parts));
}

MegatronTokens::Index MegatronTokens::open(const std::string& path) {
  const std::string name = megatron_index_of(path);
  REQUIRE(path.ends_with(".bin"),
          "{}: '{}' is no .bin file, beside which data.format = \"megatron\" has an .idx file", key_, path);
  REQUIRE(file_exists(name), "{}: '{}' needs its index '{}' for data.format = \"megatron\"", key_, path,
          name);
  Index index{InputFile(name)};
  const InputFile& file = index.file;
  REQUIRE(!begins_with(file, older_index_magic),
          "{}: '{}' is of Megatron's older format (TNTIDX): make the data anew with --dataset-impl mmap",
          key_, name);
  REQUIRE(
      begins_with(file, index_magic),
      "{}: '{}' is no index of Megatron (MMIDIDX), by its first bytes; if it has nothing to do with '{}', "
      "say what that is with data.format, such as \"bin-uint16\"",
      key_, name, path);
  REQUIRE(file.size() >= index_header_bytes, "{}: '{}' is truncated: it has {} bytes, and its header {}",
          key_, name, file.size(), index_header_bytes);
  const auto found = number_at<std::uint64_t>(file, 9);
  REQUIRE(found == index_version, "{}: '{}' has version {}; version {} is read", key_, name, found,
          index_version);
  const int code = number_at<std::uint8_t>(file, 17);
  const auto* type = std::ranges::find(id_type_rows, code, &IdTypeRow::code);
  REQUIRE(type != id_type_rows.end(),
          "{}: '{}' says that ids have the type {}, which is no type of integers (1 to 5, 8 to 10)", key_,
          name, code);
  index.width = type->width, index.has_sign = type->has_sign;
  index.sequences = number_at<std::int64_t>(file, 18);
  index.documents = number_at<std::int64_t>(file, 26);
  const std::int64_t bytes = file.size(), s = index.sequences, d = index.documents;
  REQUIRE(s >= 1 && d >= 2, "{}: '{}' holds {} sequences in {} documents: nothing to train on", key_, name, s,
          std::max<std::int64_t>(d, 1) - 1);
  const bool fits = s <= bytes / 12 && d <= bytes / 8;
  const std::int64_t expected = fits ? index_header_bytes + 12 * s + 8 * d : 0;
  REQUIRE(fits && bytes >= expected,
          "{}: '{}' is truncated: its header promises {} sequences and an index of {} documents, but it has "
          "{} bytes",
          key_, name, s, d, bytes);
  REQUIRE(bytes != expected + s,
          "{}: '{}' says for each sequence of which mode it is: data of several modes are not read", key_,
          name);
  REQUIRE(bytes == expected, "{}: '{}' is damaged: its header promises {} bytes, but it has {}", key_, name,
          expected, bytes);
  return index;
}

/// The last sequence ends where the .bin file does.
void MegatronTokens::require_bin(const InputFile& bin, const Index& index) const {
  const std::int64_t last = index.sequences - 1, width = index.width;
  const std::int64_t length = number_at<std::int32_t>(index.file, index_header_bytes + 4 * last);
  const auto begin = number_at<std::int64_t>(index.file, index_header_bytes + 4 * index.sequences + 8 * last);
  REQUIRE(bin.size() > 0, "{}: '{}' holds no tokens", key_, bin.path());
  REQUIRE(begin >= 0 && begin <= bin.size() && length >= 0 && begin + width * length == bin.size(),
          "{}: '{}' has {} bytes, and its last sequence is, by '{}', {} tokens of {} bytes from byte {} on: "
          "one of the two is truncated, or of other data",
          key_, bin.path(), bin.size(), index.file.path(), length, width, begin);
}

std::vector<std::int64_t> MegatronTokens::document_offsets() const {
  std::vector<std::int64_t> offsets{0};
  for (const Index& index : indices_) add_offsets(index, offsets);
  return offsets;
}

void MegatronTokens::add_offsets(const Index& index, std::vector<std::int64_t>& offsets) const {
  const std::string& name = index.file.path();
  const std::int64_t lengths_at = index_header_bytes, pointers_at = lengths_at + 4 * index.sequences,
                     documents_at = pointers_at + 8 * index.sequences, first = offsets.back();
  ArrayStream<std::int32_t> lengths(index.file, lengths_at, index.sequences);
  ArrayStream<std::int64_t> pointers(index.file, pointers_at, index.sequences),
      documents(index.file, documents_at, index.documents);
  std::int64_t sequence = 0, tokens = 0;
  for (std::int64_t d = 0; d < index.documents; ++d) {
    const std::int64_t end = documents.next();
    REQUIRE(end >= sequence && end <= (d == 0 ? 0 : index.sequences),
            "{}: '{}' is damaged: its document index [{}] is {}, and it must go from 0 to its {} sequences "
            "without going down",
            key_, name, d, end, index.sequences);
    for (; sequence < end; ++sequence) {
      const std::int64_t length = lengths.next(), begin = pointers.next();
      REQUIRE(length >= 0 && length <= index.tokens - tokens && begin == tokens * index.width,
              "{}: '{}' says that sequence {} is {} tokens from byte {} on, and those before it end at byte "
              "{} of {}: only sequences that follow one another are read",
              key_, name, sequence, length, begin, tokens * index.width, index.tokens * index.width);
      tokens += length;
    }
    if (first + tokens > offsets.back()) offsets.push_back(first + tokens);
  }
  REQUIRE(sequence == index.sequences, "{}: '{}' is damaged: its document index ends at sequence {} of {}",
          key_, name, sequence, index.sequences);
  REQUIRE(tokens == index.tokens, "{}: '{}' names {} tokens, and its .bin file holds {}", key_, name, tokens,
          index.tokens);
}

}  // namespace ztrain::data
