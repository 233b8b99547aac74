#include "checkpoint/saving.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "base/json.hpp"
#include "checkpoint/format/metadata_file.hpp"
#include "checkpoint/pieces.hpp"
#include "checkpoint/retention.hpp"
#include "files/hdf5_file.hpp"
#include "files/posix_file.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::json;

constexpr int most_tries = 5;  ///< tries of a save whose folder disappears

/// Returns at rank 0 everything that the index holds.
Index gather_index(const Group& world, Catalog catalog, std::vector<FileEntry> files,
                   const std::vector<OwnPiece>& pieces, const std::vector<std::int64_t>& checksums) {
  std::vector<PieceRow> rows;
  for (const OwnPiece& piece : pieces) rows.push_back(piece.row);
  std::vector<int> row_cells, checksum_counts;
  Index index{std::move(catalog), std::move(files), rows_of(world.gather(cells_of(rows), row_cells)),
              world.gather(checksums, checksum_counts)};
  auto row = index.pieces.begin();
  std::int64_t before = 0;
  for (std::size_t r = 0; r < row_cells.size(); ++r) {
    for (int n = row_cells[r] / static_cast<int>(piece_columns); n > 0; --n)
      (row++)->first_checksum += before;
    before += checksum_counts[r];
  }
  std::sort(index.pieces.begin(), index.pieces.end(), piece_before);
  return index;
}

/// Checks that nobody has removed or cut files while others were written. Opens them, because a shared file
/// system may show this node another size of a file that is only looked at.
void require_written(const fs::path& folder, const std::vector<FileEntry>& files) {
  for (const FileEntry& file : files) {
    const std::int64_t bytes = PosixFile::open_to_read(folder / file.name).size();
    REQUIRE(bytes == file.bytes,
            "{}: was changed while the checkpoint was written: it has {} of its {} bytes",
            (folder / file.name).string(), bytes, file.bytes);
  }
}

void require_legal(const fs::path& folder, std::int64_t step, const Place& place,
                   std::span<const StateShard> states, const SaveOptions& options) {
  REQUIRE(!folder.empty(), "checkpoint.folder is empty: name a folder");
  REQUIRE(step >= 0, "checkpoint: step {} is negative", step);
  REQUIRE(options.files >= 0 && options.files <= max_files,
          "checkpoint.files = {}: legal is 0 (one per node) to {}", options.files, max_files);
  REQUIRE(options.keep >= 0, "checkpoint.keep = {}: legal is 0 (all) or more", options.keep);
  for (const StateShard& s : states) {
    REQUIRE(
        !s.state.empty() && s.state.front() != '/' && s.state != "ztrain" && !s.state.starts_with("ztrain/"),
        "checkpoint: '{}' is no name of a state", s.state);
    REQUIRE(s.unit >= 0 && s.unit < std::ssize(place.layout->units()), "checkpoint: {} names unit {} of {}",
            s.state, s.unit, place.layout->units().size());
    require_granule(s.state, s.granule);
    REQUIRE(s.data != nullptr || place.layout->unit(s.unit).shard_elements == 0,
            "checkpoint: {} of unit {} has no data", s.state, s.unit);
  }
}

}  // namespace

/// Returns whether this rank makes a folder: on its node, or for all.
bool Saving::makes_folder() const {
  if (!of_nodes()) return world_.rank() == 0;
  const auto own = options_.node_of.begin() + world_.rank();
  return std::find(options_.node_of.begin(), own, *own) == own;
}

void Saving::hold() const {
  world_.together([&] {
    if (world_.rank() == 0 && options_.hold) options_.hold();
  });
}

/// Exchanges what ranks must know of each other before any writes.
void Saving::begin() try {
  stage_ = Stage::prepare;
  catalog_ = agree_on_catalog(world_, place_, states_);
  pieces_ = own_pieces(place_, states_, catalog_);
  assigned_ = of_nodes() ? assign_files_of_nodes(world_, !pieces_.empty(), options_.node_of)
                         : assign_files(world_, !pieces_.empty(), options_.files);
  std::vector<PieceRow*> rows;
  std::int64_t own = 0;
  for (OwnPiece& piece : pieces_) {
    rows.push_back(&piece.row);
    own += piece.row.bytes();
  }
  bytes_ = 0;
  for (const std::int64_t of_rank : world_.all_gather(own)) bytes_ += of_rank;
  files_.emplace(world_, assigned_, std::move(rows));
} catch (const runtime::AgreedError& e) {
  throw NotSaved(e.what());
}

void Saving::prepare() const {
  if (of_nodes()) {
    begin_snapshot(folder_, step_);
    return;
  }
  prepare_folder(folder_, step_, options_);
  require_room(unfinished_, bytes_);
}

void Saving::publish_checkpoint() {
  require_complete(index_);
  for (const ParameterEntry& p : index_.catalog.parameters)
    REQUIRE(!p.elsewhere || metadata_->contains(frozen_key), "no rank has {} of {} to save", weights_state,
            p.name);
  if (!of_nodes()) require_written(unfinished_, index_.files);
  write_index(unfinished_ / index_name, index_, json_text(*metadata_), options_.key);
  PosixFile::open_to_write(unfinished_ / index_name, options_.key).sync();
  write_metadata_file(unfinished_, *metadata_, options_.key);
  if (of_nodes()) return;
  saved_.warning = publish(folder_, step_);
  if (saved_.warning.empty())
    saved_.warning = fmt::format("{}", fmt::join(retain(folder_, step_, options_), "; "));
}

void Saving::work_of_stage(const Progress& progress) {
  switch (stage_) {
    case Stage::prepare:
      if (makes_folder()) prepare();
      return;
    case Stage::create:
      return files_->create(unfinished_, catalog_, options_.key);
    case Stage::write:
      if (assigned_.own >= 0)
        checksums_ =
            write_pieces(unfinished_ / file_name(assigned_.own), pieces_, progress, {.key = options_.key});
      return;
    case Stage::publish:
      if (world_.rank() == 0) publish_checkpoint();
      return;
    case Stage::done:
      return;
  }
}

/// Returns the next stage. Throws AgreedError if the work of any rank has failed.
Saving::Stage Saving::next_stage() {
  world_.agree(std::exchange(error_, ""));
  switch (stage_) {
    case Stage::prepare:
      return Stage::create;
    case Stage::create:
      entries_ = files_->tell(world_);
      return Stage::write;
    case Stage::write:
      index_ = gather_index(world_, std::move(catalog_), std::move(entries_), pieces_, checksums_);
      return Stage::publish;
    case Stage::publish:
      saved_.warning = note_ + world_.broadcast(saved_.warning);
      return Stage::done;
    case Stage::done:
      return Stage::done;
  }
  return Stage::done;
}

/// Starts again if somebody has removed the folder, for snapshots the folder of any node; otherwise throws
/// the failure.
void Saving::begin_again(const runtime::AgreedError& failure) {
  const bool gone = makes_folder() && !remove_unfinished(folder_, step_);
  const auto all = world_.all_gather(gone ? 1 : 0);
  if (std::ranges::count(all, 1) == 0 || tries_ == most_tries) throw NotSaved(failure.what());
  ++tries_;
  note_ = fmt::format("'{}' was removed while this checkpoint was written, and it is written anew; ",
                      unfinished_.string());
  hold();
  begin();
}

Saving::Saving(fs::path folder, std::int64_t step, const Place& place, std::vector<StateShard> states,
               const json& metadata, const SaveOptions& options)
    : folder_(std::move(folder)),
      unfinished_(unfinished_path(folder_, step)),
      step_(step),
      place_(place),
      states_(std::move(states)),
      metadata_(std::make_shared<json>(metadata)),
      options_(options) {
  world_.together([&] {
    require_legal(folder_, step_, place_, states_, options_);
    prepare_hdf5();
  });
  hold();
  begin();
}

void Saving::work(const Progress& progress) noexcept {
  error_ = failure_of([&] { work_of_stage(progress); });
}

bool Saving::exchange() {
  try {
    stage_ = next_stage();
  } catch (const runtime::AgreedError& failure) {
    begin_again(failure);
  }
  return stage_ == Stage::done;
}

Saved save(const fs::path& folder, std::int64_t step, const Place& place, std::span<const StateShard> states,
           const json& metadata, const SaveOptions& options, const Progress& progress) {
  Saving saving(folder, step, place, {states.begin(), states.end()}, metadata, options);
  do saving.work(progress);
  while (!saving.exchange());
  return saving.saved();
}

}  // namespace ztrain::checkpoint
