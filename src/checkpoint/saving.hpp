#pragma once
// One save, in stages. A stage is work that each rank does by itself, followed by a small exchange of all
// ranks. A thread beside training may therefore do the work, while only the training thread communicates.

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/format/format.hpp"
#include "checkpoint/pieces.hpp"
#include "checkpoint/rank_group.hpp"
#include "checkpoint/shard_files.hpp"

namespace ztrain::checkpoint {

class Saving {
 public:
  /// Collective. Takes what save() takes, and throws what it throws before it writes. The layout of `place`
  /// and the memory of `states` must not change while this lives.
  Saving(std::filesystem::path folder, std::int64_t step, const Place& place, std::vector<StateShard> states,
         const nlohmann::json& metadata, const SaveOptions& options);

  /// Does this rank's work of the present stage, without communication, on any thread. Keeps failures for
  /// exchange(), including what `progress` throws.
  void work(const Progress& progress = {}) noexcept;
  /// Records why the work could not be done, instead of work().
  void fail(std::string why) noexcept { error_ = std::move(why); }
  /// Collective, after work() on every rank. Returns true once the checkpoint is in its place. Throws what
  /// save() throws, and then must not be called again.
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
  std::string error_;  ///< error of this rank's work; "" for none
  int tries_ = 1;
  std::string note_;  ///< note on earlier tries
  Saved saved_;

  // The members below belong to the present try.
  Catalog catalog_;
  std::vector<OwnPiece> pieces_;
  std::int64_t bytes_ = 0;  ///< bytes of all ranks
  Files assigned_;
  std::optional<ShardFiles> files_;
  std::vector<FileEntry> entries_;
  std::vector<std::int64_t> checksums_;
  Index index_;  ///< set at rank 0
};

}  // namespace ztrain::checkpoint
