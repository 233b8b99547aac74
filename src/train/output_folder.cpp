#include "train/output_folder.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.hpp"
#include "checkpoint/checkpoint.hpp"

namespace ztrain::train {

void make_writable(const std::filesystem::path& folder, const char* key) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  REQUIRE(!error, "{}: cannot create the folder '{}': {}", key, folder.string(), error.message());
  const std::filesystem::path probe = folder / ".ztrain_write_test";
  std::ofstream file(probe);
  file << "ztrain\n";
  file.close();
  REQUIRE(file, "{}: cannot write in '{}': {}", key, folder.string(), std::strerror(errno));
  std::filesystem::remove(probe, error);
}

checkpoint::PosixFile lock_output(const std::filesystem::path& folder) {
  auto file = checkpoint::PosixFile::create(folder / ".lock", "run.output");
  REQUIRE(
      file.lock(),
      "run.output: another run is writing to '{}' ({}): wait for its end, or give this one another folder",
      folder.string(), file.path().string());
  return file;
}

std::string move_aside(const std::filesystem::path& folder, std::int64_t step, const std::string& suffix) {
  std::filesystem::path aside;
  for (const auto& path : checkpoint::list(folder)) {
    if (checkpoint::step_of(path) <= step) continue;
    std::error_code error;
    if (aside.empty()) {
      aside = folder.string() + suffix;
      for (int n = 2; std::filesystem::exists(aside); ++n)
        aside = folder.string() + fmt::format("{}-{}", suffix, n);
      std::filesystem::create_directories(aside, error);
    }
    if (!error) std::filesystem::rename(path, aside / path.filename(), error);
    REQUIRE(!error, "checkpoint.folder: '{}' is not of this run and cannot be moved to '{}': {}",
            path.string(), aside.string(), error.message());
  }
  return aside.string();
}

}  // namespace ztrain::train
