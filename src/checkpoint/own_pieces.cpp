#include "checkpoint/own_pieces.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "base/hash.hpp"
#include "files/posix_file.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;

template <class List, class Match>
std::int64_t index_where(const List& list, Match match) {
  return std::find_if(list.begin(), list.end(), match) - list.begin();
}

/// Bytes [at, at + length) of a piece where the CPU reaches them, if need be in `copy`.
const std::byte* on_host(const OwnPiece& piece, std::int64_t at, std::int64_t length,
                         std::vector<std::byte>& copy) {
  if (!piece.memory) return piece.data + at;
  copy.resize(static_cast<std::size_t>(length));
  piece.memory->read(copy.data(), piece.data + at, length);
  return copy.data();
}

}  // namespace

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
      file.begin_to_write(length, piece.row.byte_offset + at);
      done += length;
      if (progress) progress(done, total);
    }
  }
  file.sync();
  file.close();
  return checksums;
}

}  // namespace ztrain::checkpoint
