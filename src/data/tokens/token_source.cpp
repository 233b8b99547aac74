#include "data/tokens/token_source.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "data/tokens/file_tokens.hpp"
#include "data/tokens/hdf5_tokens.hpp"
#include "data/tokens/megatron_tokens.hpp"
#include "data/tokens/staged_files.hpp"
#include "files/file.hpp"

namespace ztrain::data {

namespace {

std::string kind_by_name(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".h5" || extension == ".hdf5") return "hdf5";
  if (extension == ".bin") return file_exists(megatron_index_of(path)) ? "megatron" : "token";
  return "text";
}

/// Returns "hdf5", "megatron", "token" or "text".
std::string kind_of(const std::vector<std::string>& files, const std::string& format,
                    const std::string& key) {
  if (format == "hdf5" || format == "text" || format == "megatron") return format;
  if (format != "auto") return "token";
  const std::string kind = kind_by_name(files.front());
  for (const auto& file : files) {
    REQUIRE(kind_by_name(file) == kind,
            "{}: '{}' looks like a {} file and '{}' like a {} file; give each an entry of its "
            "own in data.train, and data.weights",
            key, files.front(), kind, file, kind_by_name(file));
  }
  return kind;
}

}  // namespace

void TokenSource::read_mask(std::int64_t, std::int64_t count, std::uint8_t* out) const {
  std::fill_n(out, count, std::uint8_t{1});
}

std::string TokenSource::id_text(std::int64_t position) const {
  std::int32_t id = 0;
  read(position, 1, &id);
  return id >= 0 ? fmt::format("{}", id)
                 : fmt::format("{} ({} where ids have no sign)", id, static_cast<std::uint32_t>(id));
}

std::uint64_t TokenSource::end_identity() const {
  constexpr std::int64_t most = 16;
  std::uint64_t hash = 0;
  for (std::int64_t end = size(); end > 0;) {
    const std::int64_t of_file = locate(end - 1).position + 1, count = std::min(of_file, most);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
    read(end - count, count, ids.data());
    hash = hash_bytes(ids.data(), ids.size() * sizeof(std::int32_t), hash);
    end -= of_file;
  }
  return hash;
}

void TokenSource::require_inside(std::int64_t begin, std::int64_t count) const {
  REQUIRE(begin >= 0 && count >= 0 && begin <= size() - count,
          "tokens [{}, {}) are outside the {} tokens of {}", begin, begin + count, size(), files_of(*this));
}

std::uint64_t identity_of(std::uint64_t before, const std::string& path, std::int64_t tokens,
                          std::uint64_t samples) {
  const std::string stem = std::filesystem::path(path).stem().string();
  return hash_text(fmt::format("{} {} {}", stem, tokens, samples), before);
}

std::unique_ptr<TokenSource> open_tokens(const std::vector<std::string>& patterns, const std::string& format,
                                         const std::string& key, const Reader& reader) {
  REQUIRE(!patterns.empty(), "{} names no files", key);
  auto files = expand_patterns(patterns, key);
  require_unpacked(files, key);
  const std::string kind = kind_of(files, format, key);
  for (std::string& file : files) file = copy_or_itself(file, reader.stage);
  if (kind == "hdf5") return std::make_unique<Hdf5Tokens>(files, key);
  if (kind == "megatron") return std::make_unique<MegatronTokens>(files, key);
  if (kind == "text") {
    require_text(files, format == "text", reader, key);
    return FileTokens::text(files, key);
  }
  return FileTokens::binary(files, format, reader.vocab_size, key);
}

std::string files_of(const TokenSource& source) {
  const std::string first = source.locate(0).file;
  const bool more = source.locate(source.size() - 1).file != first;
  return fmt::format("'{}'{}", first, more ? ", ..." : "");
}

MaskStream::MaskStream(const TokenSource& source, std::string key) : source_(source), key_(std::move(key)) {}

std::int64_t MaskStream::count(std::int64_t begin, std::int64_t end) {
  if (!source_.has_mask()) return end - begin;
  std::int64_t trained = 0;
  while (begin < end) {
    while (begin >= end_) next_block();
    const std::int64_t stop = std::min(end, end_);
    trained +=
        std::accumulate(block_.begin() + (begin - begin_), block_.begin() + (stop - begin_), std::int64_t{0});
    begin = stop;
  }
  return trained;
}

std::uint64_t MaskStream::finish() {
  while (source_.has_mask() && end_ < source_.size()) next_block();
  return hash_;
}

void MaskStream::next_block() {
  constexpr std::int64_t block_tokens = std::int64_t{1} << 20;
  begin_ = end_;
  end_ = std::min(begin_ + block_tokens, source_.size());
  block_.resize(static_cast<std::size_t>(end_ - begin_));
  source_.read_mask(begin_, end_ - begin_, block_.data());
  hash_ = hash_bytes(block_.data(), block_.size(), hash_);
  const auto odd = std::find_if(block_.begin(), block_.end(), [](std::uint8_t value) { return value > 1; });
  if (odd == block_.end()) return;
  const Place place = source_.locate(begin_ + (odd - block_.begin()));
  // The message leaves out the value, because sources cut what files store to a byte.
  fail("{}: loss_mask[{}] of '{}' is neither 1 (predicted) nor 0", key_, place.position, place.file);
}

Tokenizer joined(const Tokenizer& a, const Tokenizer& b, const std::string& key) {
  REQUIRE(
      a.hash.empty() || b.hash.empty() || a.hash == b.hash,
      "{}: '{}' was tokenised with {} (tokenizer.json {}) and '{}' with {} ({}); prepare both with the same "
      "tokenizer",
      key, a.file, a.name, a.hash, b.file, b.name, b.hash);
  REQUIRE(a.chat_template_hash.empty() || b.chat_template_hash.empty() ||
              a.chat_template_hash == b.chat_template_hash,
          "{}: '{}' and '{}' were made with different chat templates ({} and {}); prepare both with the same",
          key, a.chat_template_file, b.chat_template_file, a.chat_template_hash, b.chat_template_hash);
  Tokenizer all = a;
  if (all.hash.empty()) all.file = b.file, all.name = b.name, all.hash = b.hash, all.folder = b.folder;
  if (all.chat_template_hash.empty()) {
    all.chat_template_file = b.chat_template_file;
    all.chat_template_hash = b.chat_template_hash;
  }
  if (b.vocab_size > all.vocab_size) all.vocab_file = b.vocab_file, all.vocab_size = b.vocab_size;
  all.ends.clear();
  std::ranges::set_union(a.ends, b.ends, std::back_inserter(all.ends));
  return all;
}

std::string compare_with_model(const Tokenizer& tokenizer, const std::string& model_folder) {
  const std::filesystem::path path = std::filesystem::path(model_folder) / "tokenizer.json";
  std::error_code ignored;
  if (tokenizer.hash.empty() || !std::filesystem::is_regular_file(path, ignored)) return "";
  constexpr std::int64_t largest = 1 << 28;  // bytes; the largest in use take some 30 million
  std::string found;
  try {
    const std::string bytes = read_file(path.string(), largest);
    found = hex(hash_bytes(bytes.data(), bytes.size()));
  } catch (const Error& e) {
    return fmt::format("warning: the data were tokenised with {} (tokenizer.json {}), and {}", tokenizer.name,
                       tokenizer.hash, e.what());
  }
  if (found == tokenizer.hash) return fmt::format("{}, that of {}", tokenizer.name, model_folder);
  return fmt::format("warning: the data were tokenised with {} (tokenizer.json {}), {} has another ({})",
                     tokenizer.name, tokenizer.hash, model_folder, found);
}

}  // namespace ztrain::data
