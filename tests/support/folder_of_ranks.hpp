#pragma once
// A temporary folder that all ranks know, of which rank 0 takes care.

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "tests/support/mpi_main.hpp"

namespace ztrain::test {

class FolderOfRanks {
 public:
  FolderOfRanks() {
    std::string made = (std::filesystem::temp_directory_path() / "ztrain-test-XXXXXX").string();
    if (session().rank() == 0 && mkdtemp(made.data()) == nullptr) made.clear();
    path_ = session().from_rank_0(made);
  }
  ~FolderOfRanks() {
    session().barrier();
    std::error_code ignored;
    if (session().rank() == 0) std::filesystem::remove_all(path_, ignored);
  }
  FolderOfRanks(const FolderOfRanks&) = delete;
  FolderOfRanks& operator=(const FolderOfRanks&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace ztrain::test
