#pragma once
// Which rank writes into which shard file, and where. Internal to checkpoint.

#include <cstdint>
#include <filesystem>
#include <vector>

#include "checkpoint/format/format.hpp"
#include "checkpoint/rank_group.hpp"

namespace ztrain::checkpoint {

struct Files {
  int count = 0;
  int own = -1;  ///< -1: this rank writes nothing
};

/// Collective. wanted: number of files; 0: one for each node that writes.
Files assign_files(const Group& world, bool writes, int wanted);

/// Collective: lets the first writer of each file make it, and tells the writers of this rank's pieces their
/// offsets. Gives the files, at rank 0 with the checksums of their frames.
std::vector<FileEntry> create_files(const Group& world, const Files& files,
                                    const std::filesystem::path& folder, const Catalog& catalog,
                                    const std::vector<PieceRow*>& own);

/// Rows as the integers that they consist of, and back.
std::vector<std::int64_t> cells_of(const std::vector<PieceRow>& rows);
std::vector<PieceRow> rows_of(const std::vector<std::int64_t>& cells);

}  // namespace ztrain::checkpoint
