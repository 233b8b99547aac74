#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/parallel.hpp"
#include "base/text.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/format/convert.hpp"
#include "checkpoint/format/damaged.hpp"
#include "checkpoint/format/format.hpp"
#include "checkpoint/format/metadata_file.hpp"
#include "checkpoint/host_window.hpp"
#include "checkpoint/reader.hpp"
#include "config/hf/starting_point.hpp"
#include "layout/comm_cost.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Threads for shards that the CPU does not reach. They need a window of the host's memory besides, so with
/// fewer threads the total is no more than for other shards.
constexpr int window_lanes = checkpoint_lanes / 2;
constexpr std::int64_t window_bytes = window_lanes * checkpoint_part;
static_assert(checkpoint_buffers(window_lanes, checkpoint_part) + window_bytes <= checkpoint_room);
/// A reader has a block that it converts, and pages of the disk.
static_assert(checkpoint_lanes *
                  (checksum_block + memory::HugeBuffer::taken(checksum_block + 2 * direct_page)) <=
              checkpoint_room);

/// Returns the written bytes of a part, if an item takes `size` bytes in memory.
std::int64_t part_of(const PieceRow& row, std::int64_t size) {
  const std::int64_t written = size_of(row.type());
  return checkpoint_part * written / std::max(written, size);
}

constexpr const char* same_optimizer =
    "optimizer.name, and whether optimizer.ema_decay is above 0, must be what the checkpoint was written "
    "with";

std::string describe(const TensorSlice& slice) {
  return slice.parts == 1 ? "whole" : fmt::format("cut over dim {} into {}", slice.dim, slice.parts);
}

/// Returns the bytes of a shard on this rank.
std::int64_t bytes_of(const StateShard& shard, const Place& place) {
  return place.layout->unit(shard.unit).shard_elements / shard.granule * size_of(shard.dtype);
}

class Loader {
 public:
  Loader(const fs::path& folder, const Place& place, const LoadOptions& options)
      : folder_(folder),
        place_(place),
        reader_(folder, options.verify, options.cache),
        readers_(static_cast<std::size_t>(checkpoint_lanes), reader_) {
    for (const ParameterEntry& p : reader_.catalog().parameters)
      numbers_.emplace(p.name, static_cast<std::int64_t>(numbers_.size()));
    require_same_parameters();
  }

  /// Requires that the optimizer steps the same parameters as before.
  void require_same_trained() const {
    std::vector<std::string> other;
    for (const ParameterShape& p : place_.layout->parameters()) {
      const auto number = static_cast<std::size_t>(numbers_.at(p.name));
      if (reader_.catalog().parameters[number].frozen == p.trainable) other.push_back(p.name);
    }
    REQUIRE(other.empty(),
            "{}: {} parameters were frozen and are trained now, or the reverse: {}; set model.trainable, "
            "model.frozen and [lora] back, or {}",
            where(), other.size(), fmt::join(other, ", "), advice);
  }

  /// Requires the states that the checkpoint holds of this rank's parameters. Frozen parameters have weights
  /// alone.
  void require_states(std::span<const StateShard> shards, OtherStates others) const {
    std::set<std::string> wanted, held;
    for (const StateShard& s : shards)
      if (!s.of_each_copy) wanted.insert(s.state);
    const auto& states = reader_.catalog().states;
    for (std::int64_t s = 0; s < std::ssize(states); ++s)
      if (const std::string& name = states[at(s)].name; copy_in(name) < 0 && is_held_of_rank(s))
        held.insert(name);
    const bool has_all = std::ranges::includes(held, wanted);
    const bool has_others = !wanted.empty() && held.size() > wanted.size();
    REQUIRE(has_all && (others == OtherStates::skip || !has_others),
            "{}: holds the states {}, and the run wants {}; {}; {}", where(), fmt::join(held, ", "),
            fmt::join(wanted, ", "), same_optimizer, advice);
  }

  Loaded result() const {
    return {std::ranges::none_of(reader_.catalog().parameters, &ParameterEntry::elsewhere), anew_};
  }

  /// Returns whether the weights of a unit are elsewhere.
  bool is_elsewhere(const StateShard& shard) const {
    const auto& segments = place_.layout->unit(shard.unit).segments;
    const auto here = std::ranges::count_if(segments, [&](const Segment& s) {
      const std::string& name = place_.layout->parameters()[at(s.parameter)].name;
      return !reader_.catalog().parameters[at(numbers_.at(name))].elsewhere;
    });
    REQUIRE(here == 0 || here == std::ssize(segments),
            "{}: holds what was trained alone, and the run wants frozen weights in one unit with it",
            where());
    return here == 0 && !segments.empty();
  }

  /// Calls tell with the bytes that have come.
  void fill(const StateShard& shard, const std::function<void(std::int64_t)>& tell) {
    HostWindow window(shard, window_bytes);
    std::vector<Part> parts;
    const std::vector<Cut> cuts = cut(shard, window, parts);
    std::int64_t came = 0;
    for (std::size_t first = 0, end = 0; first < parts.size(); first = end) {
      while (end < parts.size() && place(parts[end], window)) ++end;
      came = read({parts.data() + first, end - first}, shard, came, tell);
      window.flush();
    }
    std::size_t first = 0;
    for (const Cut& piece : cuts) {
      require_whole(piece, {parts.data() + first, piece.parts}, shard);
      first += piece.parts;
    }
  }

 private:
  std::string where() const { return (folder_ / index_name).string(); }

  /// Returns whether the checkpoint holds a state of any parameter that this rank has.
  bool is_held_of_rank(std::int64_t state) const {
    return std::ranges::any_of(place_.layout->parameters(), [&](const ParameterShape& p) {
      return p.unit >= 0 && !reader_.pieces(state, numbers_.at(p.name)).empty();
    });
  }

  void require_same_parameters() const {
    std::map<std::string, const ParameterShape*> known;
    std::vector<std::string> missing, unknown;
    for (const ParameterShape& p : place_.layout->parameters()) {
      known[p.name] = &p;
      if (!numbers_.contains(p.name)) missing.push_back(p.name);
    }
    for (const ParameterEntry& p : reader_.catalog().parameters) {
      const auto found = known.find(p.name);
      if (found == known.end())
        unknown.push_back(p.name);
      else
        REQUIRE(found->second->shape == p.shape,
                "{}: {} has shape {}, the model's has {}; is [model] another? {}", where(), p.name,
                to_string(p.shape), to_string(found->second->shape), advice);
    }
    REQUIRE(missing.empty(), "{}: lacks {} of the model:{}\nis [model] another? {}", where(),
            count_text(std::ssize(missing), "parameter"), list_lines(missing, 2), advice);
    REQUIRE(unknown.empty(), "{}: holds {} that the model lacks:{}\nis [model] another? {}", where(),
            count_text(std::ssize(unknown), "parameter"), list_lines(unknown, 2), advice);
  }

  /// A run of one piece that one thread reads at once.
  struct Part {
    const ParameterShape* parameter;
    std::span<const PieceRow> rows;  ///< rows that may hold its items
    Wanted wanted;
    std::int64_t begin, end;  ///< bytes of the shard
    std::byte* to = nullptr;
    std::int64_t found = 0;
  };
  /// A piece to be read, and the number of its parts.
  struct Cut {
    const ParameterShape* parameter;
    std::int64_t items;
    std::size_t parts;
  };

  static bool place(Part& part, HostWindow& window) {
    if (!window.holds(part.begin, part.end)) return false;
    part.to = window.place(part.begin, part.end);
    return true;
  }

  /// Returns the number of the state in which the checkpoint has this rank's items of a parameter, or that of
  /// no state: it holds them of another number of copies, or of none.
  std::int64_t state_of(const StateShard& shard, const ParameterShape& parameter) const {
    const auto& states = reader_.catalog().states;
    std::string name = shard.state;
    if (shard.of_each_copy) {
      const AxisSet axes = values_over(place_.layout->unit(shard.unit).shard_axes, parameter.slice);
      const ParameterEntry& written = reader_.catalog().parameters[at(numbers_.at(parameter.name))];
      if (written.copies != place_.at.mesh().size(axes)) return std::ssize(states);
      name = copy_name(shard.state, place_.at.index_in(axes));
    }
    return std::ranges::find(states, name, &StateEntry::name) - states.begin();
  }

  /// Cuts a shard into pieces. Sets the bytes between them, and pieces of states of each copy that the
  /// checkpoint does not have, to zero.
  std::vector<Cut> cut(const StateShard& shard, const HostWindow& window, std::vector<Part>& parts) {
    const FlatUnit& unit = place_.layout->unit(shard.unit);
    const std::int64_t begin = unit.shard_begin(place_.at), size = size_of(shard.dtype);
    std::vector<Cut> cuts;
    std::int64_t filled = 0;
    for (const Piece& piece : place_.layout->pieces(shard.unit, place_.at)) {
      if (shard.of_each_copy && state_of(shard, place_.layout->parameters()[ztrain::at(piece.parameter)]) ==
                                    std::ssize(reader_.catalog().states)) {
        anew_.insert(shard.state);
        continue;
      }
      const std::int64_t at = (piece.flat_begin - begin) / shard.granule * size;
      window.zero(filled, at);
      cuts.push_back(cut(piece, shard, at, parts));
      filled = at + ceil_div(piece.count, shard.granule) * size;
    }
    window.zero(filled, bytes_of(shard, place_));
    return cuts;
  }

  /// Cuts a piece whose slices are as they were written into a part for each run of blocks, of at most
  /// checkpoint_part bytes as written and in memory. Other pieces have runs in many places, and stay whole.
  /// begin counts bytes of the shard before the piece.
  Cut cut(const Piece& piece, const StateShard& shard, std::int64_t begin, std::vector<Part>& parts) const {
    const ParameterShape& parameter = place_.layout->parameters()[static_cast<std::size_t>(piece.parameter)];
    const std::int64_t number = numbers_.at(parameter.name);
    const int tensor_index = ztrain::part_of(parameter.slice, place_.at);
    const auto rows = reader_.pieces(state_of(shard, parameter), number);
    for (const PieceRow& row : rows) require_same_form(row, shard, parameter);
    const auto& written = reader_.catalog().parameters[static_cast<std::size_t>(number)];
    const bool same = !rows.empty() && same_slices(slices_of(written, rows.front()), parameter.slice);
    const std::int64_t first = piece.slice_begin / shard.granule,
                       count = ceil_div(piece.count, shard.granule), size = size_of(shard.dtype);
    const auto add = [&](std::span<const PieceRow> from, const ItemRun& run) {
      const std::int64_t at = begin + (run.begin - first) * size;
      parts.push_back({&parameter,
                       from,
                       {parameter.slice, tensor_index, run.begin, run.count},
                       at,
                       at + run.count * size});
    };
    const std::size_t before = parts.size();
    if (!same) add(rows, {first, count});
    for (std::size_t r = 0; same && r < rows.size(); ++r)
      if (rows[r].tensor_index == tensor_index)
        for (const ItemRun& run : runs_of_blocks(rows[r], first, count, part_of(rows[r], size)))
          add(rows.subspan(r, 1), run);
    return {&parameter, count, parts.size() - before};
  }

  /// Reads the parts, and returns the bytes that have come by then, of which `before` came earlier.
  std::int64_t read(std::span<Part> parts, const StateShard& shard, std::int64_t before,
                    const std::function<void(std::int64_t)>& tell) {
    std::atomic<std::int64_t> came = before;
    in_lanes(std::ssize(parts), shard.memory ? window_lanes : checkpoint_lanes,
             [&](std::int64_t i, int lane) {
               Part& part = parts[static_cast<std::size_t>(i)];
               part.found = read(part, shard, readers_[static_cast<std::size_t>(lane)]);
               came += part.end - part.begin;
               if (lane == 0) tell(came);
             });
    return came;
  }

  std::int64_t read(const Part& part, const StateShard& shard, Reader& reader) const {
    std::int64_t found = 0;
    for (const PieceRow& row : part.rows) try {
        found += reader.read(row, part.wanted, part.to, shard.dtype);
      } catch (const Damaged& e) {
        fail_damaged("{} (while reading {} of {}); {}", e.what(), shard.state, part.parameter->name, advice);
      } catch (const Error& e) {
        fail("{} (while reading {} of {}); {}", e.what(), shard.state, part.parameter->name, advice);
      }
    return found;
  }

  void require_whole(const Cut& piece, std::span<const Part> parts, const StateShard& shard) const {
    std::int64_t found = 0;
    for (const Part& part : parts) found += part.found;
    REQUIRE(found == piece.items, "{}: holds {} of {} items of {} of {}; {}", where(), found, piece.items,
            shard.state, piece.parameter->name, advice);
  }

  /// Requires that the written type, granule and slices can become those in memory.
  void require_same_form(const PieceRow& row, const StateShard& shard,
                         const ParameterShape& parameter) const {
    const std::int64_t granule = reader_.catalog().states[static_cast<std::size_t>(row.state)].granule;
    REQUIRE(granule == shard.granule,
            "{}: {} of {} has an item for every {} elements and the run wants one for every {}; {}; {}",
            where(), shard.state, parameter.name, granule, shard.granule, same_optimizer, advice);
    REQUIRE(row.type() == shard.dtype || (shard.state == weights_state && converts(row.type(), shard.dtype)),
            "{}: {} of {} is {} and the run wants {}; set the deck's [precision] back, or {}", where(),
            shard.state, parameter.name, name_of(row.type()), name_of(shard.dtype), advice);
    const TensorSlice written =
        slices_of(reader_.catalog().parameters[static_cast<std::size_t>(row.parameter)], row);
    REQUIRE(
        same_slices(written, parameter.slice) || (follow_slices(parameter.shape, written, granule) &&
                                                  follow_slices(parameter.shape, parameter.slice, granule)),
        "{}: {} of {} is {} and the run wants it {}, but blocks of {} elements do not follow other "
        "slices; set mesh.tensor and mesh.expert to what the checkpoint was written with, or {}",
        where(), shard.state, parameter.name, describe(written), describe(parameter.slice), granule, advice);
  }

  fs::path folder_;
  const Place& place_;
  Reader reader_;
  std::vector<Reader> readers_;  ///< one reader for each lane
  std::map<std::string, std::int64_t> numbers_;
  std::set<std::string> anew_;  ///< as in Loaded
};

}  // namespace

nlohmann::json read_metadata(const fs::path& path) {
  require_intact_index(path);
  const std::string text = read_metadata_text(path / index_name);
  nlohmann::json parsed;
  try {
    parsed = parse_json(text, "its metadata", {.bytes = config::largest_metadata});
    REQUIRE(parsed.is_object(), "its metadata is not a JSON object");
  } catch (const Error& e) {
    fail("{}: is damaged: {}; {}", (path / index_name).string(), e.what(), advice);
  }
  require_same_metadata(path, parsed);
  return parsed;
}

Loaded load(const fs::path& path, const Place& place, std::span<const StateShard> all,
            const LoadOptions& options) {
  Loader loader(path, place, options);
  if (options.others == OtherStates::refuse) loader.require_same_trained();
  std::vector<StateShard> states;
  for (const StateShard& shard : all) {
    require_granule(shard.state, shard.granule);
    REQUIRE(shard.unit >= 0 && shard.unit < std::ssize(place.layout->units()),
            "checkpoint: {} names unit {} of {}", shard.state, shard.unit, place.layout->units().size());
    if (!loader.is_elsewhere(shard)) states.push_back(shard);
  }
  loader.require_states(states, options.others);
  std::int64_t done = 0, total = 0;
  for (const StateShard& shard : states) total += bytes_of(shard, place);
  const auto tell = [&](std::int64_t came) {
    if (options.progress) options.progress(done + came, total);
  };
  for (const StateShard& shard : states) {
    loader.fill(shard, tell);
    done += bytes_of(shard, place);
    tell(0);
  }
  return loader.result();
}

}  // namespace ztrain::checkpoint
