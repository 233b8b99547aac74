#include "checkpoint/saving.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/reason.hpp"
#include "checkpoint/catalog.hpp"
#include "checkpoint/format/format.hpp"
#include "checkpoint/format/metadata_file.hpp"
#include "checkpoint/neighbours/node_folder.hpp"
#include "checkpoint/own_pieces.hpp"
#include "checkpoint/rank_group.hpp"
#include "checkpoint/retention.hpp"
#include "checkpoint/shard_files.hpp"
#include "checkpoint/write_pieces.hpp"
#include "files/hdf5_file.hpp"
#include "files/posix_file.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::json;

constexpr int most_tries = 5;  ///< of a save whose folder goes

/// At rank 0, everything the index holds.
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

/// Somebody may have removed or cut files while others were written. Opened, since a shared file system may
/// show this node another size of a file that it only looks at.
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

Retention retention_of(const SaveOptions& options) {
  return {options.keep, options.keep_every, options.keep_best, options.proven_step, options.damaged};
}

}  // namespace

struct Saving::State {
  enum class Stage : std::uint8_t { prepare, create, write, publish, done };

  State(fs::path to, std::int64_t of_step, const Place& at, std::vector<StateShard> of,
        const json& beside_tensors, const SaveOptions& how)
      : folder(std::move(to)),
        unfinished(unfinished_path(folder, of_step)),
        step(of_step),
        place(at),
        states(std::move(of)),
        metadata(beside_tensors),
        options(how) {}

  Group world = Group::world();
  fs::path folder, unfinished;
  std::int64_t step;
  Place place;
  std::vector<StateShard> states;
  json metadata;
  SaveOptions options;

  Stage stage = Stage::prepare;
  std::string error;  ///< of this rank's work; "" for none
  int tries = 1;
  std::string note;  ///< of the tries before
  Saved saved;

  // Of this try.
  Catalog catalog;
  std::vector<OwnPiece> pieces;
  std::int64_t bytes = 0;  ///< of all ranks
  Files assigned;
  std::optional<ShardFiles> files;
  std::vector<FileEntry> entries;
  std::vector<std::int64_t> checksums;
  Index index;  ///< at rank 0

  bool of_nodes() const { return !options.node_of.empty(); }
  bool makes_folder() const;
  void hold() const;
  void begin();
  void begin_or_not_saved();
  void prepare() const;
  void publish_checkpoint();
  void work(const Progress& progress);
  Stage exchange();
  void begin_again(const runtime::AgreedError& failure);
};

/// On its node, or of all.
bool Saving::State::makes_folder() const {
  if (!of_nodes()) return world.rank() == 0;
  const auto own = options.node_of.begin() + world.rank();
  return std::find(options.node_of.begin(), own, *own) == own;
}

void Saving::State::hold() const {
  world.together([&] {
    if (world.rank() == 0 && options.hold) options.hold();
  });
}

/// What ranks must know of each other before any writes.
void Saving::State::begin() {
  stage = Stage::prepare;
  catalog = agree_on_catalog(world, *place.layout, states);
  pieces = own_pieces(place, states, catalog);
  assigned = of_nodes() ? assign_files_of_nodes(world, !pieces.empty(), options.node_of)
                        : assign_files(world, !pieces.empty(), options.files);
  std::vector<PieceRow*> rows;
  std::int64_t own = 0;
  for (OwnPiece& piece : pieces) {
    rows.push_back(&piece.row);
    own += piece.row.bytes();
  }
  bytes = 0;
  for (const std::int64_t of_rank : world.all_gather(own)) bytes += of_rank;
  files.emplace(world, assigned, std::move(rows));
}

void Saving::State::begin_or_not_saved() {
  try {
    begin();
  } catch (const runtime::AgreedError& e) {
    throw NotSaved(e.what());
  }
}

void Saving::State::prepare() const {
  if (of_nodes()) {
    begin_snapshot(folder, step);
    return;
  }
  prepare_folder(folder, step, retention_of(options));
  require_room(unfinished, bytes);
}

void Saving::State::publish_checkpoint() {
  require_complete(index);
  if (!of_nodes()) require_written(unfinished, index.files);
  write_index(unfinished / index_name, index, json_text(metadata), options.key);
  PosixFile::open_to_write(unfinished / index_name, options.key).sync();
  write_metadata_file(unfinished, metadata, options.key);
  if (of_nodes()) return;
  publish(folder, step);
  saved.warning = fmt::format("{}", fmt::join(retain(folder, step, retention_of(options)), "; "));
}

void Saving::State::work(const Progress& progress) {
  switch (stage) {
    case Stage::prepare:
      if (makes_folder()) prepare();
      return;
    case Stage::create:
      return files->create(unfinished, catalog, options.key);
    case Stage::write:
      if (assigned.own >= 0)
        checksums =
            write_pieces(unfinished / file_name(assigned.own), pieces, progress, {.key = options.key});
      return;
    case Stage::publish:
      if (world.rank() == 0) publish_checkpoint();
      return;
    case Stage::done:
      return;
  }
}

/// What follows; throws AgreedError where the work of any rank has failed.
Saving::State::Stage Saving::State::exchange() {
  world.agree(std::exchange(error, ""));
  switch (stage) {
    case Stage::prepare:
      return Stage::create;
    case Stage::create:
      entries = files->tell(world);
      return Stage::write;
    case Stage::write:
      index = gather_index(world, std::move(catalog), std::move(entries), pieces, checksums);
      return Stage::publish;
    case Stage::publish:
      saved.warning = note + world.broadcast(saved.warning);
      return Stage::done;
    case Stage::done:
      return Stage::done;
  }
  return Stage::done;
}

/// Where somebody has removed the folder; else that is all.
void Saving::State::begin_again(const runtime::AgreedError& failure) {
  const bool was_there = !makes_folder() || remove_unfinished(folder, step);
  if (world.broadcast(was_there ? "" : "removed").empty() || tries == most_tries)
    throw NotSaved(failure.what());
  ++tries;
  note = fmt::format("'{}' was removed while this checkpoint was written, and it is written anew; ",
                     unfinished.string());
  hold();
  begin_or_not_saved();
}

Saving::Saving(fs::path folder, std::int64_t step, const Place& place, std::vector<StateShard> states,
               const json& metadata, const SaveOptions& options) {
  const Group world = Group::world();
  world.together([&] {
    require_legal(folder, step, place, states, options);
    prepare_hdf5();
  });
  state_ = std::make_unique<State>(std::move(folder), step, place, std::move(states), metadata, options);
  state_->hold();
  state_->begin_or_not_saved();
}

Saving::Saving(Saving&& other) noexcept = default;
Saving::~Saving() = default;

void Saving::work(const Progress& progress) noexcept {
  try {
    state_->work(progress);
  } catch (const std::exception& e) {
    state_->error = reason_of(e);
    if (state_->error.empty()) state_->error = "unknown failure";
  }
}

void Saving::fail(std::string why) noexcept {
  state_->error = std::move(why);
}

bool Saving::exchange() {
  try {
    state_->stage = state_->exchange();
  } catch (const runtime::AgreedError& failure) {
    state_->begin_again(failure);
  }
  return state_->stage == State::Stage::done;
}

const Saved& Saving::saved() const {
  return state_->saved;
}

Saved save(const fs::path& folder, std::int64_t step, const Place& place, std::span<const StateShard> states,
           const json& metadata, const SaveOptions& options, const Progress& progress) {
  Saving saving(folder, step, place, {states.begin(), states.end()}, metadata, options);
  do saving.work(progress);
  while (!saving.exchange());
  return saving.saved();
}

}  // namespace ztrain::checkpoint
