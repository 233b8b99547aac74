#include "checkpoint/shard_files.hpp"

#include <cstring>
#include <string>
#include <utility>

#include "base/hash.hpp"
#include "base/shape.hpp"
#include "checkpoint/format/metadata_file.hpp"
#include "checkpoint/save_plan.hpp"
#include "files/hdf5_file.hpp"
#include "files/posix_file.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Creates a shard file with room for the rows, and fills in where each row's bytes go.
FileEntry create_shard_file(const fs::path& path, const Catalog& catalog, std::vector<PieceRow>& rows,
                            const char* key) {
  std::vector<PieceRow*> order;
  for (PieceRow& row : rows) order.push_back(&row);
  const std::vector<PlannedDataset> datasets = lay_out(catalog, order);
  // Checks the room beforehand: if HDF5 cannot give a file its size, the library crashes when the process
  // ends.
  std::int64_t bytes = 0;
  for (const PieceRow& row : rows) bytes += row.bytes();
  require_file_size(path, largest_size(bytes, std::ssize(rows)), more_files);
  Hdf5File file = Hdf5File::create(path, key);
  auto row = order.begin();
  for (const PlannedDataset& dataset : datasets) {
    const std::int64_t offset = file.reserve(dataset.name, dataset.dtype, dataset.items);
    for (std::size_t i = 0; i < dataset.rows; ++i, ++row)
      (*row)->byte_offset = offset + (*row)->dataset_begin * size_of(dataset.dtype);
  }
  file.close();
  const PosixFile written = PosixFile::open_to_read(path);
  // Reserves the room, so that ranks may write at once.
  PosixFile::open_to_write(path, key).reserve(written.size());
  return {path.filename().string(), written.size(), hex(frame_checksum(written, rows))};
}

Files files_of(const Group& world, const DealtFiles& dealt) {
  return {dealt.count, dealt.of_rank[at(world.rank())]};
}

}  // namespace

std::vector<std::int64_t> cells_of(const std::vector<PieceRow>& rows) {
  std::vector<std::int64_t> cells(rows.size() * piece_columns);
  if (!rows.empty()) std::memcpy(cells.data(), rows.data(), cells.size() * sizeof(std::int64_t));
  return cells;
}

std::vector<PieceRow> rows_of(const std::vector<std::int64_t>& cells) {
  std::vector<PieceRow> rows(cells.size() / piece_columns);
  if (!rows.empty())
    std::memcpy(static_cast<void*>(rows.data()), cells.data(), cells.size() * sizeof(std::int64_t));
  return rows;
}

Files assign_files(const Group& world, bool writes, int wanted) {
  const auto writers = world.all_gather(writes ? 1 : 0);
  return files_of(world, deal_files(writers, world.all_gather(world.node()), wanted));
}

Files assign_files_of_nodes(const Group& world, bool writes, const std::vector<int>& node_of) {
  const auto writers = world.all_gather(writes ? 1 : 0);
  return files_of(world, deal_files(writers, {node_of.begin(), node_of.end()}, 0));
}

ShardFiles::ShardFiles(const Group& world, const Files& files, std::vector<PieceRow*> own)
    : files_(files), members_(world.split(files.own)), own_(std::move(own)) {
  if (files_.own < 0) return;
  std::vector<PieceRow> rows;
  for (PieceRow* piece : own_) {
    piece->file = files_.own;
    rows.push_back(*piece);
  }
  rows_ = rows_of(members_.gather(cells_of(rows), counts_));
}

void ShardFiles::create(const fs::path& folder, const Catalog& catalog, const char* key) {
  if (creates()) created_ = create_shard_file(folder / file_name(files_.own), catalog, rows_, key);
}

std::vector<FileEntry> ShardFiles::tell(const Group& world) {
  if (files_.own >= 0)
    rows_ = rows_of(members_.scatter(cells_of(rows_), counts_, own_.size() * piece_columns));
  for (std::size_t i = 0; i < own_.size(); ++i) *own_[i] = rows_[i];
  const auto owners = world.all_gather(creates() ? files_.own : -1);
  const auto sizes = world.all_gather(created_.bytes);
  const auto frames = world.gather_text(created_.frame);
  std::vector<FileEntry> entries(static_cast<std::size_t>(files_.count));
  for (std::size_t r = 0; r < owners.size(); ++r)
    if (owners[r] >= 0)
      entries[static_cast<std::size_t>(owners[r])] = {file_name(owners[r]), sizes[r],
                                                      world.rank() == 0 ? frames[r] : ""};
  return entries;
}

}  // namespace ztrain::checkpoint
