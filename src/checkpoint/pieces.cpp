#include "checkpoint/pieces.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/json.hpp"
#include "base/parallel.hpp"
#include "base/shape.hpp"
#include "checkpoint/save_plan.hpp"
#include "files/posix_file.hpp"

namespace ztrain::checkpoint {

namespace {

using json = nlohmann::json;

json to_json(const Catalog& catalog) {
  json states = json::array(), parameters = json::array();
  for (const auto& s : catalog.states) states.push_back(json::array({s.name, s.granule}));
  for (const auto& p : catalog.parameters)
    parameters.push_back({p.name, p.shape, p.frozen, p.begins, p.elsewhere, p.by_matrix, p.copies});
  return {states, parameters};
}

Catalog from_json(const json& text) {
  Catalog catalog;
  for (const auto& state : text[0])
    catalog.states.push_back({state[0].get<std::string>(), state[1].get<std::int64_t>()});
  for (const auto& p : text[1])
    catalog.parameters.push_back({p[0].get<std::string>(), p[1].get<Shape>(), p[2].get<bool>(),
                                  p[3].get<std::vector<std::int64_t>>(), p[4].get<bool>(), p[5].get<bool>(),
                                  p[6].get<std::int64_t>()});
  return catalog;
}

}  // namespace

Catalog agree_on_catalog(const Group& world, const Place& place, std::span<const StateShard> states) {
  Catalog own;
  world.together([&] { own = catalog_of(*place.layout, place.at.mesh(), forms_of(states)); });
  const std::string text = json_text(to_json(own));
  const auto identities = world.all_gather(static_cast<std::int64_t>(hash_text(text)));
  const bool same = identities[static_cast<std::size_t>(world.rank())] == identities[0];
  const auto others = world.gather_text(same ? "" : text);
  Catalog catalog = own;
  world.together([&] {
    for (const std::string& other : others)
      if (!other.empty()) merge(catalog, from_json(parse_json(other)));
  });
  return from_json(parse_json(world.broadcast(json_text(to_json(catalog)))));
}

std::vector<OwnPiece> own_pieces(const Place& place, std::span<const StateShard> states,
                                 const Catalog& catalog) {
  const std::vector<StateForm> forms = forms_of(states);
  std::vector<OwnPiece> pieces;
  const PartRows rows(*place.layout, forms, catalog);
  for (const AxisSet axes : axes_of_shards(*place.layout)) {
    const int index = place.at.index_in(axes);
    for (const FormRow& found : rows.of_shards(place.at, axes, index, index + 1)) {
      const StateShard& shard = states[found.form];
      const std::int64_t begin = place.layout->unit(shard.unit).shard_begin(place.at);
      pieces.push_back({found.row,
                        shard.data + (found.flat_begin - begin) / shard.granule * size_of(shard.dtype),
                        shard.memory});
    }
  }
  return pieces;
}

namespace {

std::int64_t page_up(std::int64_t offset) {
  return ceil_div(offset, direct_page) * direct_page;
}
std::int64_t page_down(std::int64_t offset) {
  return offset / direct_page * direct_page;
}

/// Blocks of one piece: its bytes [begin, end).
struct Part {
  const OwnPiece* piece = nullptr;
  std::int64_t begin = 0, end = 0;
  std::int64_t first_checksum = 0;
};

/// Bytes of a piece that need not lie on pages.
struct Stretch {
  const OwnPiece* piece = nullptr;
  std::int64_t begin = 0, end = 0;
  std::int64_t bytes() const { return end - begin; }
  std::int64_t offset() const { return piece->row.byte_offset + begin; }
};

static_assert(direct_page == disk_page && checkpoint_part % checksum_block == 0);

/// One buffer for each lane, with a page more on either side than a part has. A part lies in it as it lies on
/// the pages of its file.
class Buffers {
 public:
  Buffers(memory::Provider& host, int lanes, std::int64_t part_bytes)
      : host_(host),
        bytes_(checkpoint_buffers(lanes, part_bytes)),
        each_(checkpoint_buffers(1, part_bytes)),
        pages_(host.allocate("room that a checkpoint is written through", bytes_)) {}
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers() { host_.release(pages_, bytes_); }

  std::byte* for_offset(int lane, std::int64_t offset) const {
    return pages_ + lane * each_ + offset % direct_page;
  }

 private:
  memory::Provider& host_;
  std::int64_t bytes_, each_;
  std::byte* pages_;
};

void fetch(const OwnPiece& piece, std::int64_t begin, std::int64_t end, std::byte* to) {
  if (begin >= end) return;
  if (piece.memory)
    piece.memory->read(to, piece.data + begin, end - begin);
  else
    std::memcpy(to, piece.data + begin, static_cast<std::size_t>(end - begin));
}

class PieceWriter {
 public:
  PieceWriter(const std::filesystem::path& path, const WriteOptions& options)
      : options_(options),
        file_(PosixFile::open_to_write(path, options.key)),
        direct_(PosixFile::open_direct(file_)) {}

  std::vector<std::int64_t> write(std::vector<OwnPiece>& pieces, const Progress& progress) {
    // The thread that uses a device reads its memory.
    const bool on_host = std::ranges::all_of(pieces, [](const OwnPiece& p) { return p.memory == nullptr; });
    const int lanes = on_host ? options_.lanes : 1;
    const std::vector<Part> parts = cut(pieces);
    if (!parts.empty() && (direct_ || !on_host))
      buffers_.emplace(*options_.host, std::min(lanes, static_cast<int>(parts.size())), options_.part_bytes);
    std::int64_t total = 0;
    for (const Part& part : parts) total += part.end - part.begin;
    std::atomic<std::int64_t> done = 0;
    std::int64_t told = 0;
    const auto tell = [&] {
      const std::int64_t now = done;
      if (progress && now > told) progress(told = now, total);
    };
    in_lanes(std::ssize(parts), lanes, [&](std::int64_t i, int lane) {
      done += write_part(parts[static_cast<std::size_t>(i)], lane);
      if (lane == 0) tell();
    });
    // Edges are written last: a write through the page cache has the file to itself, and those past it wait.
    for (const Stretch& edge : edges_) {
      write_cached(edge);
      done += edge.bytes();
      tell();
    }
    file_.sync();
    REQUIRE(file_.has_its_name(), "{}: was removed or replaced while the checkpoint was written",
            file_.path().string());
    file_.close();
    tell();
    return std::move(checksums_);
  }

 private:
  std::vector<Part> cut(std::vector<OwnPiece>& pieces) {
    std::vector<Part> parts;
    std::int64_t checksum = 0;
    for (OwnPiece& piece : pieces) {
      piece.row.first_checksum = checksum;
      const std::int64_t bytes = piece.row.bytes();
      for (std::int64_t at = 0; at < bytes; at += options_.part_bytes)
        parts.push_back(
            {&piece, at, std::min(at + options_.part_bytes, bytes), checksum + at / checksum_block});
      checksum += ceil_div(bytes, checksum_block);
    }
    checksums_.resize(static_cast<std::size_t>(checksum));
    return parts;
  }

  /// Returns the bytes that are written for a part. Inside a piece they begin and end on pages of the file,
  /// so they lie up to a page after those that are hashed.
  Stretch written_for(const Part& part) const {
    const PieceRow& row = part.piece->row;
    const auto cut_at = [&](std::int64_t at) {
      if (at == 0 || !direct_) return at;
      return std::min(page_up(row.byte_offset + at) - row.byte_offset, row.bytes());
    };
    return {part.piece, cut_at(part.begin), cut_at(part.end)};
  }

  /// Returns how many bytes it has written; the others are among the edges.
  std::int64_t write_part(const Part& part, int lane) {
    const Stretch all = written_for(part);
    const std::int64_t origin = part.piece->row.byte_offset;
    const Stretch pages{part.piece, page_up(all.offset()) - origin, page_down(origin + all.end) - origin};
    const bool goes_direct = direct_ && pages.bytes() >= options_.least_direct;
    const std::byte* const from = hash(part, goes_direct ? pages.end : part.end, goes_direct, lane);
    if (!direct_) {
      write_cached(all, from);
      return all.bytes();
    }
    if (!goes_direct) {
      keep(all);
      return 0;
    }
    const std::int64_t wrote =
        direct_->write_direct(from + (pages.begin - part.begin), pages.bytes(), pages.offset());
    keep({part.piece, all.begin, pages.begin});
    keep({part.piece, pages.begin + wrote, pages.end});
    keep({part.piece, pages.end, all.end});
    return wrote;
  }

  /// Hashes the blocks of a part. Returns where its byte part.begin is, followed by those up to `end`: in the
  /// lane's buffer, aligned to pages, if that is asked for or the CPU does not reach the piece.
  const std::byte* hash(const Part& part, std::int64_t end, bool on_pages, int lane) {
    const OwnPiece& piece = *part.piece;
    const bool copies = on_pages || piece.memory;
    std::byte* const copy = copies ? buffers_->for_offset(lane, piece.row.byte_offset + part.begin) : nullptr;
    for (std::int64_t at = part.begin, next = 0; at < part.end; at = next) {
      next = std::min(at + checksum_block, part.end);
      if (copies) fetch(piece, at, next, copy + (at - part.begin));  // hashed while it is in the cache
      const std::byte* const block = copies ? copy + (at - part.begin) : piece.data + at;
      checksums_[static_cast<std::size_t>(part.first_checksum + (at - part.begin) / checksum_block)] =
          static_cast<std::int64_t>(hash_bytes(block, static_cast<std::size_t>(next - at)));
    }
    if (!copies) return piece.data + part.begin;
    fetch(piece, part.end, end, copy + (part.end - part.begin));
    return copy;
  }

  void keep(const Stretch& edge) {
    if (edge.bytes() <= 0) return;
    const std::lock_guard lock(mutex_);
    edges_.push_back(edge);
  }

  void write_cached(const Stretch& stretch, const std::byte* from) const {
    file_.write_at(from, stretch.bytes(), stretch.offset());
    file_.begin_to_write(stretch.bytes(), stretch.offset());
  }

  void write_cached(const Stretch& edge) const {
    if (!edge.piece->memory) return write_cached(edge, edge.piece->data + edge.begin);
    for (std::int64_t at = edge.begin, next = 0; at < edge.end; at = next) {
      next = std::min(at + checksum_block, edge.end);
      std::byte* const copy = buffers_->for_offset(0, 0);
      fetch(*edge.piece, at, next, copy);
      write_cached({edge.piece, at, next}, copy);
    }
  }

  WriteOptions options_;
  PosixFile file_;
  std::optional<PosixFile> direct_;
  std::optional<Buffers> buffers_;  ///< empty unless bytes are copied on their way
  std::vector<std::int64_t> checksums_;
  std::mutex mutex_;
  /// Bytes that do not fill a page, and those that the system did not take directly.
  std::vector<Stretch> edges_;
};

}  // namespace

std::vector<std::int64_t> write_pieces(const std::filesystem::path& path, std::vector<OwnPiece>& pieces,
                                       const Progress& progress, const WriteOptions& options) {
  return PieceWriter(path, options).write(pieces, progress);
}

}  // namespace ztrain::checkpoint
