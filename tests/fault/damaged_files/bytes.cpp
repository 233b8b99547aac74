#include "bytes.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/error.hpp"

namespace ztrain::damaged_files {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::int64_t, 14> borders{0,
                                               1,
                                               -1,
                                               2,
                                               127,
                                               255,
                                               256,
                                               32767,
                                               65535,
                                               2147483647,
                                               2147483648,
                                               4294967295,
                                               9223372036854775807,
                                               -9223372036854775807 - 1};

/// Often near the start, where headers are.
std::size_t place_in(const std::string& bytes, Random& random) {
  const std::size_t head = std::min<std::size_t>(bytes.size(), 256);
  return random.one_in(2) ? random.below(head) : random.below(bytes.size());
}

std::string flip(std::string& bytes, Random& random) {
  const std::size_t flips = 1 + random.below(8);
  std::string where;
  for (std::size_t i = 0; i < flips; ++i) {
    const std::size_t at = place_in(bytes, random);
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
    where += fmt::format(" {}", at);
  }
  return "bits flipped in bytes" + where;
}

std::string put_integer(std::string& bytes, Random& random) {
  const std::array<std::size_t, 4> widths{1, 2, 4, 8};
  const std::size_t width = std::min(random.pick(widths), bytes.size());
  std::size_t at = std::min(place_in(bytes, random), bytes.size() - width);
  if (random.one_in(2)) at -= at % width;
  const std::int64_t value = random.pick(borders);
  std::memcpy(bytes.data() + at, &value, width);
  return fmt::format("{} in the {} bytes at {}", value, width, at);
}

std::string cut(std::string& bytes, Random& random) {
  const std::size_t whole = bytes.size();
  bytes.resize(random.one_in(3) ? whole - std::min<std::size_t>(whole, 1 + random.below(8))
                                : random.below(whole));
  return fmt::format("cut from {} to {} bytes", whole, bytes.size());
}

std::string repeat_part(std::string& bytes, Random& random) {
  const std::size_t from = random.below(bytes.size()), to = random.below(bytes.size());
  const std::string part = bytes.substr(from, 1 + random.below(512));
  if (random.one_in(2)) {
    bytes.insert(to, part);
    return fmt::format("{} bytes from {} repeated at {}", part.size(), from, to);
  }
  bytes.replace(to, part.size(), part);
  return fmt::format("{} bytes from {} over those at {}", part.size(), from, to);
}

std::string remove_part(std::string& bytes, Random& random) {
  const std::size_t at = place_in(bytes, random), count = 1 + random.below(64);
  bytes.erase(at, count);
  return fmt::format("up to {} bytes taken out at {}", count, at);
}

std::string fill_part(std::string& bytes, Random& random) {
  const std::size_t at = place_in(bytes, random);
  const std::size_t count = std::min(bytes.size() - at, 1 + random.below(1024));
  const char value = random.pick(std::array<char, 4>{'\0', '\xff', ' ', '\x1b'});
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), count, value);
  return fmt::format("{} bytes at {} all {:#x}", count, at, static_cast<unsigned char>(value));
}

std::string append(std::string& bytes, Random& random) {
  const std::size_t count = 1 + random.below(4096);
  for (std::size_t i = 0; i < count; ++i) bytes += static_cast<char>(random.one_in(4) ? random.bits() : 0);
  return fmt::format("{} bytes more at the end", count);
}

constexpr std::array<const char*, 9> replacements{
    "nothing",          "an empty file",       "a folder",
    "a FIFO",           "a link to /dev/zero", "a link to nowhere",
    "a link to itself", "a link to /dev/full", "a copy"};

}  // namespace

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  REQUIRE(file, "the test cannot write {}", path.string());
}

std::string damage(std::string& bytes, Random& random) {
  using Damage = std::string (*)(std::string&, Random&);
  constexpr std::array<Damage, 9> kinds{flip,        flip,      put_integer, put_integer, cut,
                                        repeat_part, fill_part, remove_part, append};
  return (bytes.empty() ? append : random.pick(kinds))(bytes, random);
}

std::string damage_file(const fs::path& path, Random& random) {
  std::string bytes = read_bytes(path);
  const std::string what = damage(bytes, random);
  write_bytes(path, bytes);
  return fmt::format("{}: {}", path.filename().string(), what);
}

std::string replace_file(const fs::path& path, const std::vector<fs::path>& others, Random& random) {
  const std::size_t kind = random.below(others.empty() ? replacements.size() - 1 : replacements.size());
  const fs::path other = others.empty() ? fs::path() : random.pick(others);
  const std::string bytes = kind == 8 ? read_bytes(other) : "";
  fs::remove_all(path);
  switch (kind) {
    case 0:
      break;
    case 1:
    case 8:
      write_bytes(path, bytes);
      break;
    case 2:
      fs::create_directory(path);
      break;
    case 3:
      REQUIRE(::mkfifo(path.c_str(), 0600) == 0, "the test cannot make a FIFO");
      break;
    case 4:
      fs::create_symlink("/dev/zero", path);
      break;
    case 5:
      fs::create_symlink("nowhere", path);
      break;
    case 6:
      fs::create_symlink(path.filename(), path);
      break;
    default:
      fs::create_symlink("/dev/full", path);
  }
  return fmt::format("{} is {} {}", path.filename().string(), replacements[kind],
                     kind == 8 ? "of " + other.filename().string() : "");
}

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code loop;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file(loop)) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

}  // namespace ztrain::damaged_files
