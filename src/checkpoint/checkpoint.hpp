#pragma once
// Checkpoints: directories step_N of HDF5 shard files and an index whose virtual datasets show every logical
// tensor whole. What is on disk is described in checkpoint/format/format.hpp. The format knows parameters and
// logical elements only: any mesh reads what any mesh wrote.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "layout/layout.hpp"
#include "memory/provider.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::checkpoint {

/// One rank's part of one state of one unit. The memory is the caller's.
/// A state has an item for each element, or for each block of `granule` elements counted from the start of
/// the parameter's tensor-parallel slice (the last block may be short), as the scales of block-wise quantised
/// moments (Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022). The granule divides the
/// quantum, so that no block is cut between ranks.
struct StateShard {
  std::string state;  ///< "model", "optimizer/exp_avg", "optimizer/exp_avg.absmax"
  int unit = 0;
  DType dtype = DType::f32;
  std::byte* data = nullptr;  ///< shard_elements / granule items: this rank's shard of the unit's flat range
  std::int64_t granule = 1;   ///< elements per item, the same for all units and ranks
  /// Of which data is. Null: the CPU reaches it. Otherwise no work may be under way on it; copies of a
  /// few MiB of it at a time are made on the host to fill and to save it, but of all of a parameter's part
  /// that is cut otherwise than it was written.
  memory::Provider* memory = nullptr;
};

/// How blocks that are verified come from the disk. past: those of files that are not in the page cache pass
/// it by, where the file system can do that.
enum class PageCache : std::uint8_t { through, past };

/// Which shard is meant. The layout is cut over shard x context and names every parameter of the model. A
/// rank whose strategy keeps a state replicated saves its own slice of it, as if it were sharded.
struct Place {
  const Layout* layout = nullptr;
  Coordinate at;
  int shard_index = 0;
};

inline constexpr int max_files = 256;
/// Of the metadata: the loss on held-out data, of weights that have one (SaveOptions::keep_best).
inline constexpr const char* validation_loss_key = "validation_loss";

struct SaveOptions {
  int files = 0;                ///< shard files; 0: one per node that writes, at most max_files
  int keep = 0;                 ///< complete checkpoints that stay in the folder, the newest; 0: all
  std::int64_t keep_every = 0;  ///< those of steps that this divides stay as well; 0: none
  int keep_best = 0;  ///< those whose metadata say the lowest "validation_loss" stay as well; 0: none
  /// Of a checkpoint that stays as well: training is known to go on from it. -1: none.
  std::int64_t proven_step = -1;
  /// Steps of checkpoints that are known to be damaged: they are left as they are, and no older one goes
  /// because of them. That of the step that is saved is replaced all the same.
  std::set<std::int64_t> damaged = {};
  /// Where each node has a folder of its own of this name: the node of each rank (NodeRing). A file then has
  /// what the ranks of one node write and lies there, the index and the metadata at rank 0's; the folder
  /// stays step_<step>.tmp, for whoever brings the rest to other nodes. Of `keep` and the like nothing is
  /// looked at.
  std::vector<int> node_of = {};
  /// What rank 0 does before it makes the folder, which it does again where that goes during the save. What
  /// it throws ends the save, and is no NotSaved.
  std::function<void()> hold = {};
  const char* key = "checkpoint.folder";  ///< that names the folder, for messages
};

/// Bytes that this rank has written, or read, and those that it will have in all; where checkpoints are
/// compared, items. Called after each block of some MiB, by the thread that does so.
using Progress = std::function<void(std::int64_t done, std::int64_t total)>;

/// The same on every rank: this checkpoint could not be written, and those before are as they were. A later
/// one may have more luck: somebody makes room, or a disk comes back.
class NotSaved : public runtime::AgreedError {
 public:
  using AgreedError::AgreedError;
};

/// How a save ended whose checkpoint is in its place.
struct Saved {
  std::string warning;  ///< what else went wrong, such as old files that could not be removed; else ""
};

/// Writes folder/step_<step>, replacing it if it exists, then removes checkpoints beyond options.keep (those
/// beyond it already make room first). What cannot be removed does not fail the save: every rank gets the
/// same warning. Collective over MPI_COMM_WORLD; metadata is taken from rank 0. Until the last moment the
/// files are in step_<step>.tmp, so a crash leaves earlier checkpoints as they were. When any rank fails
/// (full disk, I/O error, a parameter that no rank owns) every rank throws the same NotSaved, which names the
/// rank and the file, and step_<step>.tmp is removed. Where there is no room for the tensors nothing is
/// written. Where somebody removes that folder during the save, it is made and written anew, with a warning.
Saved save(const std::filesystem::path& folder, std::int64_t step, const Place& place,
           std::span<const StateShard> states, const nlohmann::json& metadata,
           const SaveOptions& options = {}, const Progress& progress = {});

/// Complete checkpoints of a folder, newest (highest step) first. A folder that does not exist has
/// none; one that cannot be read is an Error.
std::vector<std::filesystem::path> list(const std::filesystem::path& folder);
std::optional<std::filesystem::path> newest(const std::filesystem::path& folder);
/// The step that a path from list() or newest() is of.
std::int64_t step_of(const std::filesystem::path& checkpoint);

/// What save was given. Throws Error when path is no checkpoint, or is of a newer format.
nlohmann::json read_metadata(const std::filesystem::path& path);

/// What load does about states of the checkpoint that it is not asked for.
enum class OtherStates {
  refuse,  ///< a run that goes on must take all: another optimizer would start from nothing unnoticed
  skip     ///< one that only reads weights leaves the optimizer's states
};

struct LoadOptions {
  bool verify = true;  ///< check every block of bytes that is read against its checksum
  OtherStates others = OtherStates::refuse;
  /// Past it where no other rank of this node reads the same bytes.
  PageCache cache = PageCache::through;
  Progress progress = {};  ///< as they come, in bytes of this rank's memory; called by the caller's thread
};

/// Fills `states` from the checkpoint at path; padding becomes zero. Not collective: one rank, one Place, a
/// call of its own. Reads the index, and of the shard files the bytes it needs (rounded out to checksum
/// blocks when verifying); needs checkpoint_room of the host's memory besides, and what StateShard::memory
/// says. "model" converts between floating types (checkpoint/format/convert.hpp); other states must have the
/// dtype and granule they had, and those with a granule above 1 load onto the tensor-parallel slices they
/// had. Throws Error, naming file and parameter (of what is not as it was written: Damaged,
/// checkpoint/format/damaged.hpp), when a parameter is missing, has another shape, is unknown to the layout,
/// or when a shard file is missing, truncated or damaged; and one that lists the states of both sides when
/// they differ (options.others). `states` then holds a mixture.
void load(const std::filesystem::path& path, const Place& place, std::span<const StateShard> states,
          const LoadOptions& options = {});

}  // namespace ztrain::checkpoint
