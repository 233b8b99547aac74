#include "data/tokens/staged_files.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/text.hpp"

namespace ztrain::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* stage_key = "data.stage";
constexpr std::int64_t piece_bytes = 8 << 20;

/// Returns whether the copy's time of change is the file's, as far as the copy's file system keeps it: some
/// cut times to microseconds, to seconds, or to even seconds.
bool same_time(fs::file_time_type copy, fs::file_time_type file) {
  using std::chrono::microseconds, std::chrono::seconds;
  const auto cut = file - copy, since = copy.time_since_epoch();
  if (cut.count() <= 0) return cut.count() == 0;
  return (since % seconds(1) == since.zero() && cut < seconds(2)) ||
         (since % microseconds(1) == since.zero() && cut < microseconds(1));
}

bool is_whole(const fs::path& copy, const fs::path& file) {
  std::error_code gone, unknown;
  const auto size = fs::file_size(copy, gone);
  if (gone || size != fs::file_size(file, unknown) || unknown) return false;
  const auto time = fs::last_write_time(copy, gone), of_file = fs::last_write_time(file, unknown);
  return !gone && !unknown && same_time(time, of_file);
}

std::uint64_t hash_of_bytes(const PosixFile& file, std::int64_t bytes, std::vector<char>& piece) {
  std::uint64_t hash = 0;
  for (std::int64_t at = 0; at < bytes; at += piece_bytes) {
    const std::int64_t count = std::min(piece_bytes, bytes - at);
    file.read_at(piece.data(), count, at);
    hash = hash_bytes(piece.data(), static_cast<std::size_t>(count), hash);
  }
  return hash;
}

/// Returns the files, and behind each of Megatron's its index.
std::vector<std::string> with_indices(const std::vector<std::string>& files) {
  std::vector<std::string> all;
  std::error_code unknown;
  for (const std::string& file : files) {
    all.push_back(file);
    const fs::path index = fs::path(file).replace_extension(".idx");
    if (file.ends_with(".bin") && fs::exists(index, unknown)) all.push_back(index.string());
  }
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  return all;
}

}  // namespace

std::string copy_of(const std::string& file, const std::string& folder) {
  const fs::path whole = fs::absolute(file).lexically_normal();
  return (fs::path(folder) / hex(hash_text(whole.parent_path().native())) / whole.filename()).string();
}

std::string copy_or_itself(const std::string& file, const std::string& folder) {
  if (folder.empty()) return file;
  std::string copy = copy_of(file, folder);
  return is_whole(copy, file) ? copy : file;
}

FileCopies::FileCopies(const std::vector<std::string>& files, std::string folder)
    : folder_(std::move(folder)), piece_(static_cast<std::size_t>(piece_bytes)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  REQUIRE(!error, "{}: cannot create the folder '{}': {}", stage_key, folder_, error.message());
  for (const std::string& file : with_indices(files)) {
    const auto size = static_cast<std::int64_t>(fs::file_size(file, error));
    REQUIRE(!error, "{}: '{}' cannot be read: {}", stage_key, file, error.message());
    if (is_whole(copy_of(file, folder_), file)) {
      found_ += size;
      continue;
    }
    bytes_ += size;
    files_.push_back(file);
  }
  const fs::space_info space = fs::space(folder_, error);
  REQUIRE(error || space.capacity == 0 || static_cast<std::uintmax_t>(bytes_) <= space.available,
          "{}: the files take {} and '{}' has room for {}: make room, name another drive, or leave the "
          "key out",
          stage_key, format_bytes(static_cast<double>(bytes_)), folder_,
          format_bytes(static_cast<double>(space.available)));
}

FileCopies::~FileCopies() {
  if (now_) ::unlink(now_->unfinished.c_str());
}

bool FileCopies::work(double seconds) {
  for (const double end = now() + seconds; now() < end;) {
    if (!now_ && files_.empty()) return true;
    if (!now_)
      begin_next();
    else if (now_->at < now_->from.size())
      copy_some();
    else
      finish_one();
  }
  return !now_ && files_.empty();
}

void FileCopies::begin_next() {
  const std::string copy = copy_of(files_.back(), folder_);
  std::error_code error;
  const fs::path parent = fs::path(copy).parent_path();
  fs::create_directories(parent, error);
  REQUIRE(!error, "{}: cannot create the folder '{}': {}", stage_key, parent.string(), error.message());
  std::string unfinished = fmt::format("{}.{}.tmp", copy, ::getpid());
  PosixFile from = PosixFile::open_to_read(files_.back()), to = PosixFile::create(unfinished, stage_key);
  now_.emplace(UnderWay{std::move(from), std::move(to), std::move(unfinished)});
}

void FileCopies::copy_some() {
  const std::int64_t count = std::min(piece_bytes, now_->from.size() - now_->at);
  now_->from.read_at(piece_.data(), count, now_->at);
  now_->hash = hash_bytes(piece_.data(), static_cast<std::size_t>(count), now_->hash);
  now_->to.write_at(piece_.data(), count, now_->at);
  now_->at += count;
  done_ += count;
}

void FileCopies::finish_one() {
  const std::string file = files_.back(), copy = copy_of(file, folder_);
  now_->to.sync();
  now_->to.close();
  const PosixFile written = PosixFile::open_to_read(now_->unfinished);
  REQUIRE(hash_of_bytes(written, now_->at, piece_) == now_->hash,
          "{}: the copy '{}' has other bytes than were written to it: its drive may be at fault", stage_key,
          copy);
  std::error_code error;
  const auto time = fs::last_write_time(file, error);
  if (!error) fs::last_write_time(now_->unfinished, time, error);
  if (!error) fs::rename(now_->unfinished, copy, error);
  REQUIRE(!error, "{}: the copy '{}' cannot be finished: {}", stage_key, copy, error.message());
  now_.reset();
  REQUIRE(is_whole(copy, file), "{}: '{}' has changed while it was copied", stage_key, file);
  files_.pop_back();
}

}  // namespace ztrain::data
