#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/json.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/format/format.hpp"
#include "checkpoint/format/metadata_file.hpp"
#include "checkpoint/rank_group.hpp"
#include "checkpoint/retention.hpp"
#include "checkpoint/shard_files.hpp"
#include "config/hf/starting_point.hpp"
#include "files/posix_file.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::json;

constexpr int most_tries = 5;  ///< of a save whose folder goes

// ---- What there is to save

/// A name has one granule, whoever says so.
void add_state(Catalog& catalog, const StateEntry& state) {
  const auto known = std::ranges::find(catalog.states, state.name, &StateEntry::name);
  if (known == catalog.states.end())
    catalog.states.push_back(state);
  else
    REQUIRE(known->granule == state.granule,
            "{} has an item for every {} elements in one place and for every {} in another", state.name,
            known->granule, state.granule);
}

Catalog own_catalog(const Layout& layout, std::span<const StateShard> states) {
  Catalog catalog;
  for (const StateShard& s : states) add_state(catalog, {s.state, s.granule});
  for (const ParameterShape& p : layout.parameters())
    catalog.parameters.push_back({p.name, p.shape, !p.trainable, p.slice.begins});
  return catalog;
}

json to_json(const Catalog& catalog) {
  json states = json::array(), parameters = json::array();
  for (const auto& s : catalog.states) states.push_back(json::array({s.name, s.granule}));
  for (const auto& p : catalog.parameters) parameters.push_back({p.name, p.shape, p.frozen, p.begins});
  return {states, parameters};
}

void merge(Catalog& catalog, const json& other) {
  for (const auto& state : other[0])
    add_state(catalog, {state[0].get<std::string>(), state[1].get<std::int64_t>()});
  std::map<std::string, Shape> known;
  for (const auto& p : catalog.parameters) known[p.name] = p.shape;
  for (const auto& entry : other[1]) {
    const ParameterEntry p{entry[0].get<std::string>(), entry[1].get<Shape>(), entry[2].get<bool>(),
                           entry[3].get<std::vector<std::int64_t>>()};
    const auto [at, added] = known.try_emplace(p.name, p.shape);
    if (added) catalog.parameters.push_back(p);
    REQUIRE(at->second == p.shape, "{} has shape {} on one rank and {} on another", p.name,
            to_string(at->second), to_string(p.shape));
  }
}

/// The union of all ranks' catalogs, in rank order. Only ranks whose catalog differs from rank 0's send
/// theirs.
Catalog agree_on_catalog(const Group& world, const Layout& layout, std::span<const StateShard> states) {
  Catalog own;
  world.together([&] { own = own_catalog(layout, states); });
  const std::string text = json_text(to_json(own));
  const auto identities = world.all_gather(static_cast<std::int64_t>(hash_text(text)));
  const bool same = identities[static_cast<std::size_t>(world.rank())] == identities[0];
  const auto others = world.gather_text(same ? "" : text);
  Catalog catalog = own;
  world.together([&] {
    for (const std::string& other : others)
      if (!other.empty()) merge(catalog, parse_json(other));
  });
  const auto all = parse_json(world.broadcast(json_text(to_json(catalog))));
  Catalog agreed;
  merge(agreed, all);
  return agreed;
}

template <class List, class Match>
std::int64_t index_where(const List& list, Match match) {
  return std::find_if(list.begin(), list.end(), match) - list.begin();
}

struct OwnPiece {
  PieceRow row;
  const std::byte* data = nullptr;
  const memory::Provider* memory = nullptr;  ///< as StateShard::memory
};

/// The pieces of this rank's shards that this rank owns.
std::vector<OwnPiece> own_pieces(const Place& place, std::span<const StateShard> states,
                                 const Catalog& catalog) {
  std::map<std::string, std::int64_t> number;
  for (const auto& p : catalog.parameters) number.emplace(p.name, static_cast<std::int64_t>(number.size()));
  std::vector<OwnPiece> pieces;
  for (const StateShard& shard : states) {
    const std::int64_t granule = shard.granule;
    const FlatUnit& unit = place.layout->unit(shard.unit);
    const std::int64_t begin = place.shard_index * unit.shard_elements;
    for (const Piece& piece : place.layout->pieces(shard.unit, begin, begin + unit.shard_elements)) {
      const ParameterShape& parameter = place.layout->parameters()[static_cast<std::size_t>(piece.parameter)];
      if (!owns(place.at, parameter)) continue;
      PieceRow row;
      row.state = index_where(catalog.states, [&](const StateEntry& s) { return s.name == shard.state; });
      row.parameter = number.at(parameter.name);
      if (!parameter.slice.whole()) {
        row.tensor_dim = parameter.slice.dim;
        row.tensor_parts = parameter.slice.parts;
        row.tensor_index = place.at[Axis::tensor];
      }
      row.slice_begin = piece.slice_begin / granule;
      row.count = ceil_div(piece.count, granule);
      row.dtype = static_cast<std::int64_t>(shard.dtype);
      row.unit = shard.unit;
      pieces.push_back(
          {row, shard.data + (piece.flat_begin - begin) / granule * size_of(shard.dtype), shard.memory});
    }
  }
  return pieces;
}

/// Bytes [at, at + length) of a piece where the CPU reaches them, if need be in `copy`.
const std::byte* on_host(const OwnPiece& piece, std::int64_t at, std::int64_t length,
                         std::vector<std::byte>& copy) {
  if (!piece.memory) return piece.data + at;
  copy.resize(static_cast<std::size_t>(length));
  piece.memory->read(copy.data(), piece.data + at, length);
  return copy.data();
}

/// Writes and syncs this rank's pieces and gives the checksums of their blocks. Each row's first_checksum
/// counts from this rank's first.
std::vector<std::int64_t> write_pieces(const fs::path& path, std::vector<OwnPiece>& pieces,
                                       const Progress& progress) {
  constexpr std::int64_t chunk = 16 * checksum_block;  // hashed and written while it is in the cache
  std::vector<std::int64_t> checksums;
  std::int64_t done = 0, total = 0;
  for (const OwnPiece& piece : pieces) total += piece.row.bytes();
  PosixFile file = PosixFile::open_to_write(path);
  std::vector<std::byte> copy;
  for (OwnPiece& piece : pieces) {
    piece.row.first_checksum = std::ssize(checksums);
    const std::int64_t bytes = piece.row.bytes();
    for (std::int64_t at = 0; at < bytes; at += chunk) {
      const std::int64_t length = std::min(chunk, bytes - at);
      const std::byte* const from = on_host(piece, at, length, copy);
      for (std::int64_t block = 0; block < length; block += checksum_block)
        checksums.push_back(static_cast<std::int64_t>(
            hash_bytes(from + block, static_cast<std::size_t>(std::min(checksum_block, length - block)))));
      file.write_at(from, length, piece.row.byte_offset + at);
    }
    done += bytes;
    if (progress) progress(done, total);
  }
  file.sync();
  file.close();
  return checksums;
}

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

void require_sound(const fs::path& folder, std::int64_t step, const Place& place,
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
  return {options.keep, options.keep_every, options.proven_step, options.damaged};
}

Saved write_all(const Group& world, const fs::path& folder, std::int64_t step, const Place& place,
                std::span<const StateShard> states, const json& metadata, const SaveOptions& options,
                const Progress& progress) {
  const fs::path unfinished = unfinished_path(folder, step);
  Catalog catalog = agree_on_catalog(world, *place.layout, states);
  std::vector<OwnPiece> pieces = own_pieces(place, states, catalog);
  const Files files = assign_files(world, !pieces.empty(), options.files);
  std::vector<PieceRow*> rows;
  std::int64_t own = 0, bytes = 0;
  for (OwnPiece& piece : pieces) {
    rows.push_back(&piece.row);
    own += piece.row.bytes();
  }
  for (const std::int64_t of_rank : world.all_gather(own)) bytes += of_rank;
  world.together([&] {
    if (world.rank() == 0) require_room(unfinished, bytes);
  });
  std::vector<FileEntry> entries = create_files(world, files, unfinished, catalog, rows);
  std::vector<std::int64_t> checksums;
  world.together([&] {
    if (files.own >= 0) checksums = write_pieces(unfinished / file_name(files.own), pieces, progress);
  });
  const Index index = gather_index(world, std::move(catalog), std::move(entries), pieces, checksums);
  std::string warning;
  const Retention retention = retention_of(options);
  world.together([&] {
    if (world.rank() != 0) return;
    require_complete(index);
    require_written(unfinished, index.files);
    write_index(unfinished / index_name, index, json_text(metadata));
    PosixFile::open_to_write(unfinished / index_name).sync();
    write_metadata_file(unfinished, metadata);
    publish(folder, step);
    warning = fmt::format("{}", fmt::join(retain(folder, step, retention), "; "));
  });
  return {world.broadcast(warning)};
}

}  // namespace

Saved save(const fs::path& folder, std::int64_t step, const Place& place, std::span<const StateShard> states,
           const json& metadata, const SaveOptions& options, const Progress& progress) {
  const Group world = Group::world();
  world.together([&] { require_sound(folder, step, place, states, options); });
  std::string note;
  for (int tries = 1;; ++tries) {
    world.together([&] {
      if (world.rank() == 0 && options.hold) options.hold();
    });
    try {
      world.together([&] {
        if (world.rank() == 0) prepare_folder(folder, step, retention_of(options));
      });
      Saved saved = write_all(world, folder, step, place, states, metadata, options, progress);
      saved.warning = note + saved.warning;
      return saved;
    } catch (const runtime::AgreedError& e) {
      const bool was_there = world.rank() != 0 || remove_unfinished(folder, step);
      if (world.broadcast(was_there ? "" : "removed").empty() || tries == most_tries)
        throw NotSaved(e.what());
    }
    note = fmt::format("'{}' was removed while this checkpoint was written, and it is written anew; ",
                       unfinished_path(folder, step).string());
  }
}

}  // namespace ztrain::checkpoint
