#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/format.hpp"
#include "checkpoint/posix_file.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* advice = "set checkpoint.resume to the path of an older checkpoint, or to \"none\"";

/// Elements that a written piece and a wanted piece share: `from` counts in the written piece, `to` in the
/// wanted one.
struct Copy {
  std::int64_t from = 0, to = 0, count = 0;
};

/// What is wanted: a run of a tensor-parallel slice of one parameter.
struct Wanted {
  TensorSlice slice;
  int tensor_index = 0;
  std::int64_t slice_begin = 0, count = 0;
};

/// The runs of a slice in the whole tensor.
std::vector<LogicalRun> runs_of(const ParameterEntry& parameter, const TensorSlice& slice, std::int64_t index,
                                std::int64_t begin, std::int64_t count) {
  const Layout alone({{parameter.name, parameter.shape, slice, 0, true}}, 1, 1);
  return alone.logical_runs(0, static_cast<int>(index), begin, count);
}

/// Both lists ascend in the slice and in the whole tensor.
std::vector<Copy> overlap(const std::vector<LogicalRun>& written, std::int64_t written_begin,
                          const std::vector<LogicalRun>& wanted, std::int64_t wanted_begin) {
  std::vector<Copy> copies;
  for (std::size_t i = 0, j = 0; i < written.size() && j < wanted.size();) {
    const LogicalRun &a = written[i], &b = wanted[j];
    const std::int64_t a_end = a.logical_begin + a.count, b_end = b.logical_begin + b.count;
    const std::int64_t begin = std::max(a.logical_begin, b.logical_begin), end = std::min(a_end, b_end);
    if (begin < end)
      copies.push_back({a.slice_begin - written_begin + begin - a.logical_begin,
                        b.slice_begin - wanted_begin + begin - b.logical_begin, end - begin});
    a_end < b_end ? ++i : ++j;
  }
  return copies;
}

std::vector<Copy> copies_between(const ParameterEntry& parameter, const PieceRow& row, const Wanted& wanted) {
  if (row.slice() == wanted.slice) {
    if (row.tensor_index != wanted.tensor_index) return {};
    // The same slices: whole ranges, in the slice's own indices.
    return overlap({{row.slice_begin, row.slice_begin, row.count}}, row.slice_begin,
                   {{wanted.slice_begin, wanted.slice_begin, wanted.count}}, wanted.slice_begin);
  }
  return overlap(runs_of(parameter, row.slice(), row.tensor_index, row.slice_begin, row.count),
                 row.slice_begin,
                 runs_of(parameter, wanted.slice, wanted.tensor_index, wanted.slice_begin, wanted.count),
                 wanted.slice_begin);
}

template <class From, class To>
void convert_elements(const std::byte* from, std::byte* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    From in;
    std::memcpy(&in, from + i * static_cast<std::int64_t>(sizeof in), sizeof in);
    const To out(static_cast<float>(in));
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof out), &out, sizeof out);
  }
}

template <class From>
void convert_from(const std::byte* from, std::byte* to, DType to_type, std::int64_t count) {
  if (to_type == DType::bf16)
    convert_elements<From, bf16>(from, to, count);
  else if (to_type == DType::f16)
    convert_elements<From, f16>(from, to, count);
  else
    convert_elements<From, float>(from, to, count);
}

void convert(const std::byte* from, DType from_type, std::byte* to, DType to_type, std::int64_t count) {
  if (from_type == to_type)
    std::memcpy(to, from, static_cast<std::size_t>(count * size_of(to_type)));
  else if (from_type == DType::bf16)
    convert_from<bf16>(from, to, to_type, count);
  else if (from_type == DType::f16)
    convert_from<f16>(from, to, to_type, count);
  else
    convert_from<float>(from, to, to_type, count);
}

bool may_convert(const std::string& state, DType from, DType to) {
  const auto plain = [](DType t) { return t == DType::f32 || t == DType::bf16 || t == DType::f16; };
  return from == to || (state == "model" && plain(from) && plain(to));
}

class Loader {
 public:
  Loader(const fs::path& folder, const Place& place, const LoadOptions& options)
      : folder_(folder), place_(place), verify_(options.verify), index_(read_index(folder / index_name)) {
    for (const ParameterEntry& p : index_.catalog.parameters)
      numbers_.emplace(p.name, static_cast<std::int64_t>(numbers_.size()));
    require_same_parameters();
  }

  void fill(const StateShard& shard) {
    const auto& states = index_.catalog.states;
    const auto state = std::find(states.begin(), states.end(), shard.state);
    REQUIRE(state != states.end(), "{}: holds no {}, only {}; {}", where(), shard.state,
            fmt::join(states, ", "), advice);
    const FlatUnit& unit = place_.layout->unit(shard.unit);
    const std::int64_t begin = place_.shard_index * unit.shard_elements;
    std::memset(shard.data, 0, static_cast<std::size_t>(unit.shard_elements * size_of(shard.dtype)));
    for (const Piece& piece : place_.layout->pieces(shard.unit, begin, begin + unit.shard_elements))
      fill_piece(state - states.begin(), piece, shard,
                 shard.data + (piece.flat_begin - begin) * size_of(shard.dtype));
  }

 private:
  std::string where() const { return (folder_ / index_name).string(); }

  void require_same_parameters() const {
    std::map<std::string, const ParameterShape*> known;
    std::vector<std::string> missing, unknown;
    for (const ParameterShape& p : place_.layout->parameters()) {
      known[p.name] = &p;
      if (!numbers_.contains(p.name)) missing.push_back(p.name);
    }
    for (const ParameterEntry& p : index_.catalog.parameters) {
      const auto found = known.find(p.name);
      if (found == known.end())
        unknown.push_back(p.name);
      else
        REQUIRE(found->second->shape == p.shape,
                "{}: {} has shape {}, the model's has {}; is [model] another? {}", where(), p.name,
                to_string(p.shape), to_string(found->second->shape), advice);
    }
    REQUIRE(missing.empty(), "{}: lacks {} parameters of the model: {}; is [model] another? {}", where(),
            missing.size(), fmt::join(missing, ", "), advice);
    REQUIRE(unknown.empty(), "{}: holds {} parameters that the model lacks: {}; is [model] another? {}",
            where(), unknown.size(), fmt::join(unknown, ", "), advice);
  }

  void fill_piece(std::int64_t state, const Piece& piece, const StateShard& shard, std::byte* to) {
    const ParameterShape& parameter = place_.layout->parameters()[static_cast<std::size_t>(piece.parameter)];
    const std::int64_t number = numbers_.at(parameter.name);
    const ParameterEntry& entry = index_.catalog.parameters[static_cast<std::size_t>(number)];
    const int tensor_index = parameter.slice.dim >= 0 ? place_.at[Axis::tensor] : 0;
    const Wanted wanted{parameter.slice, tensor_index, piece.slice_begin, piece.count};
    const auto [first, last] =
        std::equal_range(index_.pieces.begin(), index_.pieces.end(), std::pair(state, number), ByTensor{});
    std::int64_t found = 0;
    for (auto row = first; row != last; ++row) {
      const std::vector<Copy> copies = copies_between(entry, *row, wanted);
      if (copies.empty()) continue;
      REQUIRE(may_convert(shard.state, row->type(), shard.dtype),
              "{}: {} of {} is {} and the run wants {}; set the deck's [precision] back, or {}", where(),
              shard.state, parameter.name, name_of(row->type()), name_of(shard.dtype), advice);
      try {
        for (const Copy& copy : copies) {
          read(*row, copy, to + copy.to * size_of(shard.dtype), shard.dtype);
          found += copy.count;
        }
      } catch (const Error& e) {
        fail("{} (while reading {} of {}); {}", e.what(), shard.state, parameter.name, advice);
      }
    }
    REQUIRE(found == piece.count, "{}: holds {} of {} elements of {} of {}; {}", where(), found, piece.count,
            shard.state, parameter.name, advice);
  }

  /// Elements of one written piece, block by block.
  void read(const PieceRow& row, Copy copy, std::byte* to, DType to_type) {
    const std::int64_t size = size_of(row.type()), per_block = checksum_block / size;
    while (copy.count > 0) {
      const std::int64_t block = copy.from / per_block;
      const std::int64_t n = std::min(copy.count, (block + 1) * per_block - copy.from);
      convert(bytes_at(row, block, copy.from * size, n * size), row.type(), to, to_type, n);
      to += n * size_of(to_type);
      copy.from += n;
      copy.count -= n;
    }
  }

  /// Bytes [begin, begin + bytes) of a piece, which lie in one of its blocks. Verifying reads the whole
  /// block, once for successive calls.
  const std::byte* bytes_at(const PieceRow& row, std::int64_t block, std::int64_t begin, std::int64_t bytes) {
    if (!verify_) {
      file(row.file).read_at(block_.data(), bytes, row.byte_offset + begin);
      return block_.data();
    }
    const std::int64_t block_begin = block * checksum_block;
    const std::int64_t checksum = row.first_checksum + block;
    if (checksum != loaded_) {
      loaded_ = -1;
      const PosixFile& from = file(row.file);
      const std::int64_t length = std::min(checksum_block, row.bytes() - block_begin);
      from.read_at(block_.data(), length, row.byte_offset + block_begin);
      REQUIRE(static_cast<std::int64_t>(hash_bytes(block_.data(), static_cast<std::size_t>(length))) ==
                  index_.checksums[static_cast<std::size_t>(checksum)],
              "{}: {} bytes at offset {} do not have their checksum, the file is damaged",
              from.path().string(), length, row.byte_offset + block_begin);
      loaded_ = checksum;
    }
    return block_.data() + (begin - block_begin);
  }

  const PosixFile& file(std::int64_t number) {
    const auto open = files_.find(number);
    if (open != files_.end()) return open->second;
    const FileEntry& entry = index_.files[static_cast<std::size_t>(number)];
    PosixFile opened = PosixFile::open_to_read(folder_ / entry.name);
    REQUIRE(opened.size() == entry.bytes, "{}: is truncated or was changed: it has {} bytes, not {}",
            opened.path().string(), opened.size(), entry.bytes);
    return files_.emplace(number, std::move(opened)).first->second;
  }

  struct ByTensor {
    using Key = std::pair<std::int64_t, std::int64_t>;
    bool operator()(const PieceRow& row, const Key& key) const { return Key(row.state, row.parameter) < key; }
    bool operator()(const Key& key, const PieceRow& row) const { return key < Key(row.state, row.parameter); }
  };

  fs::path folder_;
  const Place& place_;
  bool verify_;
  Index index_;
  std::map<std::string, std::int64_t> numbers_;
  std::map<std::int64_t, PosixFile> files_;
  std::vector<std::byte> block_ = std::vector<std::byte>(static_cast<std::size_t>(checksum_block));
  std::int64_t loaded_ = -1;  ///< number of the checksum of the block in block_
};

}  // namespace

nlohmann::json read_metadata(const fs::path& path) {
  const std::string text = read_metadata_text(path / index_name);
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    fail("{}: its metadata is damaged: {}; {}", (path / index_name).string(), e.what(), advice);
  }
}

void load(const fs::path& path, const Place& place, std::span<const StateShard> states,
          const LoadOptions& options) {
  Loader loader(path, place, options);
  for (const StateShard& shard : states) {
    REQUIRE(shard.unit >= 0 && shard.unit < std::ssize(place.layout->units()),
            "checkpoint: {} names unit {} of {}", shard.state, shard.unit, place.layout->units().size());
    loader.fill(shard);
  }
}

}  // namespace ztrain::checkpoint
