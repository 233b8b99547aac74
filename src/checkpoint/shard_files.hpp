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

/// Collective: this rank's of the files that deal_files() gives to the ranks that write.
Files assign_files(const Group& world, bool writes, int wanted);
/// Collective: one for each node that writes, of the ranks of that node. node_of: by rank.
Files assign_files_of_nodes(const Group& world, bool writes, const std::vector<int>& node_of);

/// The shard files of one save, each of which its first writer makes.
class ShardFiles {
 public:
  /// Collective: brings the rows of a file's pieces to the rank that makes it. own: of this rank's pieces;
  /// they outlive this.
  ShardFiles(const Group& world, const Files& files, std::vector<PieceRow*> own);

  /// Makes the file, on the rank that does. No communication. key: of the folder, for messages.
  void create(const std::filesystem::path& folder, const Catalog& catalog, const char* key);
  /// Collective: tells the writers of the pieces their offsets. Gives the files, at rank 0 with the checksums
  /// of their frames.
  std::vector<FileEntry> tell(const Group& world);

 private:
  bool creates() const { return files_.own >= 0 && members_.rank() == 0; }

  Files files_;
  Group members_;
  std::vector<PieceRow*> own_;
  std::vector<PieceRow> rows_;  ///< of all members, where the file is made
  std::vector<int> counts_;     ///< by member: cells of its rows
  FileEntry created_;
};

/// Rows as the integers that they consist of, and back.
std::vector<std::int64_t> cells_of(const std::vector<PieceRow>& rows);
std::vector<PieceRow> rows_of(const std::vector<std::int64_t>& cells);

}  // namespace ztrain::checkpoint
