#pragma once
// One save, in stages. A stage is work that each rank does by itself, and a small exchange of all ranks
// behind it; so the work may be done by a thread beside training while only the one that trains communicates.

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/format/format.hpp"
#include "checkpoint/own_pieces.hpp"
#include "checkpoint/rank_group.hpp"
#include "checkpoint/shard_files.hpp"

namespace ztrain::checkpoint {

class Saving {
 public:
  /// Collective, what save() is given and throws before it writes. The layout of `place` and the memory of
  /// `states` stay as they are for as long as this lives.
  Saving(std::filesystem::path folder, std::int64_t step, const Place& place, std::vector<StateShard> states,
         const nlohmann::json& metadata, const SaveOptions& options);

  /// This rank's work of the present stage, without communication, on whichever thread. What fails is kept
  /// for exchange(), also what `progress` throws.
  void work(const Progress& progress = {}) noexcept;
  /// In the place of work(): why it could not be done.
  void fail(std::string why) noexcept { error_ = std::move(why); }
  /// Collective, behind work() on every rank. True: the checkpoint is in its place. Throws what save()
  /// throws; then there is nothing more to do.
  bool exchange();
  const Saved& saved() const { return saved_; }

 private:
  enum class Stage : std::uint8_t { prepare, create, write, publish, done };

  bool of_nodes() const { return !options_.node_of.empty(); }
  bool makes_folder() const;
  void hold() const;
  void begin();
  void begin_again(const runtime::AgreedError& failure);
  void prepare() const;
  void publish_checkpoint();
  void work_of_stage(const Progress& progress);
  Stage next_stage();

  Group world_ = Group::world();
  std::filesystem::path folder_, unfinished_;
  std::int64_t step_;
  Place place_;
  std::vector<StateShard> states_;
  std::shared_ptr<const nlohmann::json> metadata_;
  SaveOptions options_;

  Stage stage_ = Stage::prepare;
  std::string error_;  ///< of this rank's work; "" for none
  int tries_ = 1;
  std::string note_;  ///< of the tries before
  Saved saved_;

  // Of this try.
  Catalog catalog_;
  std::vector<OwnPiece> pieces_;
  std::int64_t bytes_ = 0;  ///< of all ranks
  Files assigned_;
  std::optional<ShardFiles> files_;
  std::vector<FileEntry> entries_;
  std::vector<std::int64_t> checksums_;
  Index index_;  ///< at rank 0
};

}  // namespace ztrain::checkpoint
