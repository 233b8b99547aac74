#pragma once
// Checkpoints: directories step_N of HDF5 shard files and an index whose virtual datasets show every logical
// tensor whole. checkpoint/format/format.hpp describes the files. The format knows parameters and logical
// elements only, so any mesh reads what any mesh wrote.

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
/// A state has an item for each element, or for each block of `granule` elements, as the scales of block-wise
/// quantised moments (Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022). Blocks count
/// from the start of the parameter's tensor-parallel slice, and the last may be short. The granule divides
/// the quantum, so no block is cut between ranks.
struct StateShard {
  std::string state;  ///< "model", "optimizer/exp_avg", "optimizer/exp_avg.absmax"
  int unit = 0;
  DType dtype = DType::f32;
  std::byte* data = nullptr;  ///< this rank's shard of the unit's flat range, shard_elements / granule items
  std::int64_t granule = 1;   ///< elements per item, the same for all units and ranks
  /// Memory that holds data; null: the CPU reaches it. Otherwise no work may be under way on it. Filling and
  /// saving copy a few MiB of it at a time on the host; a parameter that is cut otherwise than it was written
  /// is copied whole.
  memory::Provider* memory = nullptr;
  /// Whether each of the ranks that hold copies of this shard has values of its own (optim::StateInfo). Each
  /// saves them, as a state with copy_name.
  bool of_each_copy = false;
};

/// Way in which verified blocks come from the disk. With `past`, blocks of files that are not in the page
/// cache bypass it, if the file system allows that.
enum class PageCache : std::uint8_t { through, past };

/// Says which values of trained parameters a reader of weights takes.
enum class WeightValues : std::uint8_t {
  trained,
  averaged  ///< their moving averages (optimizer.ema_decay)
};

/// Says which shards are meant: the layout says over which axes each unit is cut, and names every parameter
/// of the model. A rank whose strategy keeps a state replicated saves its own slice of it, as if it were
/// sharded.
struct Place {
  const Layout* layout = nullptr;
  Coordinate at;
};

inline constexpr int max_files = 256;
/// Key of the metadata with the loss on held-out data (SaveOptions::keep_best).
inline constexpr const char* validation_loss_key = "validation_loss";
/// Key of the metadata with what identifies the data of that loss: losses over other data are not compared.
inline constexpr const char* validation_of_key = "validation_of";
/// Key of the metadata of a checkpoint that does not hold its frozen weights (frozen_base.hpp).
inline constexpr const char* frozen_key = "frozen";

struct SaveOptions {
  int files = 0;                ///< number of shard files; 0: one per node that writes, at most max_files
  int keep = 0;                 ///< number of newest complete checkpoints that stay in the folder; 0: all
  std::int64_t keep_every = 0;  ///< checkpoints of steps that this divides stay as well; 0: none
  int keep_best = 0;  ///< number of checkpoints with the lowest "validation_loss" that stay as well; 0: none
  std::string validation_of = {};  ///< "validation_of" of the losses that are compared; "": all are
  /// Step of a checkpoint that stays as well, because training is known to go on from it. -1: none.
  std::int64_t proven_step = -1;
  /// Steps of damaged checkpoints. They stay, and no older one is removed because of them. A damaged
  /// checkpoint of the step that is saved is replaced.
  std::set<std::int64_t> damaged = {};
  /// The node of each rank (NodeRing), if each node has its own folder of this name. A file then holds what
  /// the ranks of one node write and lies there; the index and the metadata lie on rank 0's node. The folder
  /// stays step_<step>.tmp until the files have been copied to other nodes. `keep` and similar options have
  /// no effect.
  std::vector<int> node_of = {};
  /// Called at rank 0 before it makes the folder, and again if the folder disappears during the save. What it
  /// throws ends the save, and is not a NotSaved.
  std::function<void()> hold = {};
  const char* key = "checkpoint.folder";  ///< key that names the folder, for messages
};

/// Gets the bytes that this rank has written or read, and all that it will; for a comparison of checkpoints,
/// items. Called after each block of some MiB, by the thread that handles it.
using Progress = std::function<void(std::int64_t done, std::int64_t total)>;

/// Thrown on every rank: this checkpoint could not be written, and earlier ones are as they were. A later one
/// may succeed after somebody makes room, or a disk comes back.
class NotSaved : public runtime::AgreedError {
 public:
  using AgreedError::AgreedError;
};

/// Result of a save whose checkpoint is in its place.
struct Saved {
  std::string warning;  ///< what else went wrong, such as old files that could not be removed; else ""
};

/// Collective over MPI_COMM_WORLD. Writes folder/step_<step>, replacing it if it exists, then removes
/// checkpoints beyond options.keep (those already beyond it first). metadata is rank 0's. If something cannot
/// be removed, the save succeeds and every rank gets the same warning. The files are in step_<step>.tmp until
/// the last moment, so a crash leaves earlier checkpoints as they were. If any rank fails (full disk, I/O
/// error, a parameter that no rank owns), every rank throws the same NotSaved, which names the rank and the
/// file, and step_<step>.tmp is removed. Without room for the tensors nothing is written. If somebody removes
/// the folder during the save, it is made and written anew, with a warning. Frozen parameters of units whose
/// "model" no rank names are not held, and metadata then says where they are (frozen_key).
Saved save(const std::filesystem::path& folder, std::int64_t step, const Place& place,
           std::span<const StateShard> states, const nlohmann::json& metadata,
           const SaveOptions& options = {}, const Progress& progress = {});

/// Returns the complete checkpoints of a folder, the highest step first. A missing folder has none. Throws
/// Error for a folder that cannot be read.
std::vector<std::filesystem::path> list(const std::filesystem::path& folder);
std::optional<std::filesystem::path> newest(const std::filesystem::path& folder);
/// Returns the checkpoint with the lowest "validation_loss", of equal ones the newest, without those of
/// options.damaged. Losses are compared as options.validation_of says.
std::optional<std::filesystem::path> best(const std::filesystem::path& folder, const SaveOptions& options);
/// Returns the step of a path from list() or newest().
std::int64_t step_of(const std::filesystem::path& checkpoint);

/// Returns the metadata that save was given. Throws Error if path is not a checkpoint, or is of a newer
/// format.
nlohmann::json read_metadata(const std::filesystem::path& path);

/// What load does about states of the checkpoint that it is not asked for.
enum class OtherStates {
  refuse,  ///< for a run that goes on: with another optimizer, states would start from nothing unnoticed
  skip     ///< for a reader of weights, which leaves the optimizer's states
};

struct LoadOptions {
  bool verify = true;  ///< compare every block that is read with its checksum
  OtherStates others = OtherStates::refuse;
  /// Blocks bypass the page cache if no other rank of this node reads them.
  PageCache cache = PageCache::through;
  Progress progress = {};  ///< bytes of this rank's memory so far; the caller's thread calls it
};

/// Result of a load.
struct Loaded {
  bool has_all = true;           ///< whether the checkpoint holds all weights; the same on all ranks
  std::set<std::string> anew{};  ///< states of each copy of which something on this rank became zero
};

/// Fills `states` from the checkpoint at path; padding becomes zero. Weights that are elsewhere stay as they
/// are. Not collective: each rank calls it for
/// its Place. Reads the index, and of the shard files the bytes that it needs (rounded out to checksum blocks
/// when verifying). Needs checkpoint_room of the host's memory besides, and what StateShard::memory says.
/// "model" converts between floating types (checkpoint/format/convert.hpp). Other states must have the dtype
/// and granule they had, and those with a granule above 1 load onto slices that cut no block. Throws
/// Error, naming file and parameter, if a parameter is missing, has another shape or is unknown to the
/// layout, or if a shard file is missing, truncated or damaged (Damaged, checkpoint/format/damaged.hpp). If
/// the states differ, the Error lists those of both sides (options.others). After an Error `states` holds a
/// mixture.
///
/// If frozen weights are elsewhere (frozen_key), leaves the shards of their units as they are, which must
/// have no others. A state of each copy becomes zero for parameters of which the checkpoint holds it of
/// another number of copies, or not at all; such states that are not wanted are left.
Loaded load(const std::filesystem::path& path, const Place& place, std::span<const StateShard> states,
            const LoadOptions& options = {});

}  // namespace ztrain::checkpoint
