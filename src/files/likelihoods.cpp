#include "files/likelihoods.hpp"

#include <algorithm>
#include <charconv>

#include "base/error.hpp"
#include "files/file.hpp"
#include "files/hdf5_file.hpp"
#include "files/hdf5_guard.hpp"
#include "files/hdf5_handle.hpp"

namespace ztrain {
namespace {

using namespace hdf5;

constexpr const char *words_name = "words", *logs_name = "log_likelihoods";
constexpr std::int64_t most_sources = 1 << 16, most_tokens = std::int64_t{1} << 48;

std::string of_source(std::int64_t number, const char* what) {
  return fmt::format("source_{}_{}", number, what);
}

/// Returns a number of an attribute, which is text.
std::int64_t number_of(const Root& root, const std::string& name, std::int64_t least, std::int64_t most) {
  const std::string text = string_attribute(root, name.c_str());
  std::int64_t value = least - 1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  REQUIRE(error == std::errc() && end == text.data() + text.size() && value >= least && value <= most,
          "{}: '{}' is no file of likelihoods, or is damaged: its attribute {} is \"{}\"", root.key,
          root.path, name, text);
  return value;
}

/// Returns the offset of the items of a dataset, which must be `count` of `width` bytes.
std::int64_t offset_of(const Root& root, const char* name, std::int64_t count, std::int64_t width) {
  const Opened opened = open_dataset(root.file, name);
  REQUIRE(opened.fault.empty() && opened.dataset, "{}: '{}' has no dataset {}{}", root.key, root.path, name,
          opened.fault.empty() ? "" : ": it " + opened.fault);
  const Handle space(H5Dget_space(opened.dataset), H5Sclose);
  const Stretch stretch = stretch_of(root.file, opened.dataset);
  REQUIRE(H5Sget_simple_extent_npoints(space) == count && stretch.descriptor >= 0 && stretch.width == width,
          "{}: '{}' is damaged: {} are not {} items of {} bytes, one behind the other", root.key, root.path,
          name, count, width);
  return stretch.offset;
}

}  // namespace

void create_likelihoods(const std::string& path, const LikelihoodHeader& header) {
  Hdf5File file = Hdf5File::create(path, "--write-likelihoods");
  const std::int64_t items = header.tokens() * header.words;
  const auto number = [&](const std::string& name, std::int64_t value) {
    file.set_attribute(name, fmt::format("{}", value));
  };
  file.set_attribute("teacher", header.teacher);
  number("vocab_size", header.vocab_size);
  number("sequence", header.sequence);
  number("top_k", header.words);
  number("sources", std::ssize(header.sources));
  for (std::int64_t s = 0; s < std::ssize(header.sources); ++s) {
    const LikelihoodSource& source = header.sources[static_cast<std::size_t>(s)];
    file.set_attribute(of_source(s, "name"), source.name);
    file.set_attribute(of_source(s, "identity"), source.identity);
    file.set_attribute(of_source(s, "rows"), source.rows);
    number(of_source(s, "tokens"), source.tokens);
  }
  file.reserve(words_name, DType::i32, items);
  file.reserve(logs_name, DType::f32, items);
  file.close();
}

LikelihoodFile::LikelihoodFile(const std::string& path, const std::string& key)
    : path_(path), key_(key), file_((require_readable(path, key), path)) {
  const Quiet quiet;
  const Guard guard(path_, Guard::for_opening);
  const Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access_without_locks()), H5Fclose);
  REQUIRE(file, "{}: '{}' cannot be opened as an HDF5 file: it is none, or is truncated", key, path);
  read_header(file);
  const Root root{file, key_, path_};
  const std::int64_t items = header_.tokens() * header_.words;
  words_at_ = offset_of(root, words_name, items, sizeof(std::int32_t));
  logs_at_ = offset_of(root, logs_name, items, sizeof(float));
  const std::int64_t bytes = std::max(words_at_, logs_at_) + items * static_cast<std::int64_t>(sizeof(float));
  REQUIRE(file_.size() >= bytes, "{}: '{}' is truncated: it has {} bytes, and its likelihoods end at {}", key,
          path, file_.size(), bytes);
}

void LikelihoodFile::read_header(std::int64_t file) {
  const Root root{file, key_, path_};
  header_.teacher = string_attribute(root, "teacher");
  header_.vocab_size = number_of(root, "vocab_size", 1, std::int64_t{1} << 31);
  header_.sequence = number_of(root, "sequence", 1, std::int64_t{1} << 31);
  header_.words = number_of(root, "top_k", 2, most_teacher_words);
  const std::int64_t sources = number_of(root, "sources", 1, most_sources);
  for (std::int64_t s = 0; s < sources; ++s) {
    LikelihoodSource source;
    source.name = string_attribute(root, of_source(s, "name").c_str());
    source.identity = string_attribute(root, of_source(s, "identity").c_str());
    source.rows = string_attribute(root, of_source(s, "rows").c_str());
    source.begin = header_.tokens();
    source.tokens = number_of(root, of_source(s, "tokens"), 1, most_tokens);
    header_.sources.push_back(std::move(source));
  }
}

void LikelihoodFile::read(std::int64_t begin, std::int64_t tokens, std::int32_t* words,
                          float* log_likelihoods) const {
  const std::int64_t row = header_.words * static_cast<std::int64_t>(sizeof(float));
  ASSERT(begin >= 0 && tokens >= 0 && begin + tokens <= header_.tokens(),
         "likelihoods of tokens [{}, {}) are read of {}", begin, begin + tokens, header_.tokens());
  file_.read(words_at_ + begin * row, tokens * row, words);
  file_.read(logs_at_ + begin * row, tokens * row, log_likelihoods);
}

void LikelihoodFile::write(const PosixFile& to, std::int64_t begin, std::int64_t tokens,
                           const std::int32_t* words, const float* log_likelihoods) const {
  const std::int64_t row = header_.words * static_cast<std::int64_t>(sizeof(float));
  to.write_at(words, tokens * row, words_at_ + begin * row);
  to.write_at(log_likelihoods, tokens * row, logs_at_ + begin * row);
}

}  // namespace ztrain
