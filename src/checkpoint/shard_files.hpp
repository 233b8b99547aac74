#pragma once
// Internal to checkpoint. Finds which rank writes into which shard file, and where.

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

/// Collective. Returns this rank's part of the files that deal_files() gives to the ranks that write.
Files assign_files(const Group& world, bool writes, int wanted);
/// Collective. Makes one file for each node that writes, for the ranks of that node. node_of is by rank.
Files assign_files_of_nodes(const Group& world, bool writes, const std::vector<int>& node_of);

/// The shard files of one save. Its first writer makes each file.
class ShardFiles {
 public:
  /// Collective. Brings the rows of a file's pieces to the rank that makes it. own are the rows of this
  /// rank's pieces; they must outlive this.
  ShardFiles(const Group& world, const Files& files, std::vector<PieceRow*> own);

  /// Makes the file, on the rank that does. Does not communicate. key names the folder in messages.
  void create(const std::filesystem::path& folder, const Catalog& catalog, const char* key);
  /// Collective. Tells the writers of the pieces their offsets. Returns the files, at rank 0 with the
  /// checksums of their frames.
  std::vector<FileEntry> tell(const Group& world);

 private:
  bool creates() const { return files_.own >= 0 && members_.rank() == 0; }

  Files files_;
  Group members_;
  std::vector<PieceRow*> own_;
  std::vector<PieceRow> rows_;  ///< rows of all members, where the file is made
  std::vector<int> counts_;     ///< number of cells of each member's rows
  FileEntry created_;
};

/// Convert rows to the integers that they consist of, and back.
std::vector<std::int64_t> cells_of(const std::vector<PieceRow>& rows);
std::vector<PieceRow> rows_of(const std::vector<std::int64_t>& cells);

}  // namespace ztrain::checkpoint
