#include "checkpoint/shard_files.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/format/metadata_file.hpp"
#include "files/hdf5_file.hpp"
#include "files/posix_file.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Of a file with these rows, at most: datasets begin on pages, and HDF5 describes each in far less.
std::int64_t largest_size(const std::vector<PieceRow>& rows) {
  constexpr std::int64_t descriptions = 1 << 20;
  std::int64_t bytes = descriptions;
  for (const PieceRow& row : rows) bytes += row.bytes() + direct_page;
  return bytes;
}

/// Creates a shard file with room for the rows, and fills in where each row's bytes go.
FileEntry create_shard_file(const fs::path& path, const Catalog& catalog, std::vector<PieceRow>& rows,
                            const char* key) {
  std::vector<PieceRow*> order;
  for (PieceRow& row : rows) order.push_back(&row);
  const auto place_key = [](const PieceRow& p) {
    return std::tuple(p.state, p.unit, p.tensor_index, p.parameter, p.slice_begin);
  };
  std::sort(order.begin(), order.end(),
            [&](const PieceRow* a, const PieceRow* b) { return place_key(*a) < place_key(*b); });
  // Beforehand: a file that HDF5 cannot give its size crashes the library when the process ends.
  require_file_size(
      path, largest_size(rows),
      ", or let more files share the bytes (more ranks, and checkpoint.files up to their number)");
  Hdf5File file = Hdf5File::create(path, key);
  for (std::size_t first = 0; first < order.size();) {
    const PieceRow& head = *order[first];
    std::size_t next = first;
    std::int64_t count = 0;
    for (; next < order.size() && order[next]->state == head.state && order[next]->unit == head.unit &&
           (next == first || count + order[next]->count <= largest_dataset);
         ++next) {
      REQUIRE(order[next]->dtype == head.dtype, "{} of unit {} is {} on one rank and {} on another",
              catalog.states[static_cast<std::size_t>(head.state)].name, head.unit, name_of(head.type()),
              name_of(order[next]->type()));
      order[next]->part = head.part;
      order[next]->dataset_begin = count;
      count += order[next]->count;
    }
    const std::string name = dataset_name(catalog.states[static_cast<std::size_t>(head.state)].name, head);
    const std::int64_t offset = file.reserve(name, head.type(), count);
    for (std::size_t i = first; i < next; ++i)
      order[i]->byte_offset = offset + order[i]->dataset_begin * size_of(order[i]->type());
    const bool continues =
        next < order.size() && order[next]->state == head.state && order[next]->unit == head.unit;
    if (continues) order[next]->part = head.part + 1;
    first = next;
  }
  file.close();
  const PosixFile written = PosixFile::open_to_read(path);
  // Beside bytes that have their room already, ranks may write at once.
  PosixFile::open_to_write(path, key).reserve(written.size());
  return {path.filename().string(), written.size(), hex(frame_checksum(written, rows))};
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

Files files_for(int rank, const std::vector<std::int64_t>& writers, const std::vector<std::int64_t>& nodes,
                int wanted) {
  const auto me = static_cast<std::size_t>(rank);
  std::set<std::int64_t> writing_nodes;
  std::int64_t count = 0, before = 0;  // writers: all, and those that come before this rank, node by node
  for (std::size_t r = 0; r < writers.size(); ++r) {
    if (writers[r] == 0) continue;
    before += std::pair(nodes[r], r) < std::pair(nodes[me], me);
    writing_nodes.insert(nodes[r]);
    ++count;
  }
  const bool by_node = wanted <= 0 && std::ssize(writing_nodes) <= max_files;
  const std::int64_t files = by_node ? std::ssize(writing_nodes) : wanted > 0 ? wanted : max_files;
  Files found;
  found.count = static_cast<int>(std::min<std::int64_t>({files, count, max_files}));
  if (writers[me] == 0) return found;
  found.own = static_cast<int>(by_node ? std::distance(writing_nodes.begin(), writing_nodes.find(nodes[me]))
                                       : before * found.count / count);
  return found;
}

Files assign_files(const Group& world, bool writes, int wanted) {
  const auto writers = world.all_gather(writes ? 1 : 0);
  return files_for(world.rank(), writers, world.all_gather(world.node()), wanted);
}

Files assign_files_of_nodes(const Group& world, bool writes, const std::vector<int>& node_of) {
  return files_for(world.rank(), world.all_gather(writes ? 1 : 0), {node_of.begin(), node_of.end()}, 0);
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
