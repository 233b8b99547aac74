#include "checkpoint/import.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "base/error.hpp"
#include "checkpoint/convert.hpp"
#include "checkpoint/safetensors.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t block_bytes = std::int64_t{4} << 20;
constexpr std::size_t named_of_each = 10;  ///< tensors that a message names
constexpr std::int64_t largest_index = largest_safetensors_header;

constexpr const char* advice =
    "give a complete folder whose weights are those of its config.json (model.from)";

bool is_ignored(const std::string& name) {
  return name == "lm_head.weight" || name.ends_with("rotary_emb.inv_freq");
}

/// "3 are missing: a, b, c"; "" for none.
std::string listing(const std::vector<std::string>& names, const char* what) {
  if (names.empty()) return "";
  const std::vector<std::string> first(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(named_of_each, names.size())));
  return fmt::format("\n  {} {}: {}{}", names.size(), what, fmt::join(first, ", "),
                     names.size() > first.size() ? ", ..." : "");
}

std::string read_text(const fs::path& path) {
  const PosixFile file = PosixFile::open_to_read(path);
  const std::int64_t size = file.size();
  REQUIRE(size <= largest_index, "{}: has {} bytes; no index of a model is above {}", path.string(), size,
          largest_index);
  std::string text(static_cast<std::size_t>(size), ' ');
  file.read_at(text.data(), size, 0);
  return text;
}

/// All tensors of a folder.
class Folder {
 public:
  explicit Folder(const fs::path& folder) : folder_(folder) {
    if (fs::exists(folder / single_safetensors)) {
      add(single_safetensors);
      return;
    }
    const fs::path index = folder / safetensors_index_name;
    REQUIRE(fs::exists(index), "model.from: '{}' holds neither {} nor {}; {}", folder.string(),
            single_safetensors, safetensors_index_name, advice);
    const auto file_of = parse_safetensors_index(read_text(index), index.string());
    std::set<std::string> files;
    for (const auto& [name, file] : file_of) files.insert(file);
    for (const std::string& file : files) add(file);
    for (const auto& [name, file] : file_of) {
      const auto at = entries_.find(name);
      REQUIRE(at != entries_.end() && files_[at->second.file].path() == folder / file,
              "{}: says that {} is in {}, which does not hold it; {}", index.string(), name, file, advice);
    }
  }

  /// The folder holds the parameters, with their shapes, and nothing else.
  void require_parameters(std::span<const ParameterShape> parameters) const {
    std::vector<std::string> missing, misshapen, unexpected;
    std::set<std::string> known;
    for (const ParameterShape& p : parameters) {
      known.insert(p.name);
      const auto at = entries_.find(p.name);
      if (at == entries_.end())
        missing.push_back(p.name);
      else if (at->second.tensor.shape != p.shape)
        misshapen.push_back(fmt::format("{} {} (the model's is {})", p.name,
                                        to_string(at->second.tensor.shape), to_string(p.shape)));
    }
    for (const auto& [name, entry] : entries_)
      if (!known.contains(name) && !is_ignored(name)) unexpected.push_back(name);
    REQUIRE(missing.empty() && misshapen.empty() && unexpected.empty(),
            "model.from: '{}' does not hold the tensors of the model:{}{}{}\n{}", folder_.string(),
            listing(missing, "missing"), listing(unexpected, "unexpected"),
            listing(misshapen, "of another shape"), advice);
  }

  /// The tensor of a parameter, of a dtype that converts to `to`.
  const SafeTensor& tensor(const std::string& name, DType to) const {
    const Entry& entry = entries_.at(name);
    const auto& dtype = entry.tensor.dtype;
    REQUIRE(
        dtype && converts(*dtype, to),
        "{}: tensor {} is {}: ztrain reads F64, F32, BF16 and F16 weights; save the model in one of these",
        files_[entry.file].path().string(), name, entry.tensor.dtype_name);
    return entry.tensor;
  }

  const PosixFile& file(const std::string& name) const { return files_[entries_.at(name).file]; }

 private:
  struct Entry {
    std::size_t file;
    SafeTensor tensor;
  };

  void add(const std::string& name) {
    files_.push_back(PosixFile::open_to_read(folder_ / name));
    for (SafeTensor& t : read_safetensors(files_.back())) {
      const auto [at, is_new] = entries_.try_emplace(t.name, files_.size() - 1, t);
      REQUIRE(is_new, "{}: tensor {} is in {} too", files_.back().path().string(), t.name,
              files_[at->second.file].path().string());
    }
  }

  fs::path folder_;
  std::vector<PosixFile> files_;
  std::map<std::string, Entry> entries_;
};

class Importer {
 public:
  Importer(const Folder& folder, const Place& place, const Progress& progress)
      : folder_(folder), place_(place), progress_(progress), block_(static_cast<std::size_t>(block_bytes)) {}

  void count(const StateShard& shard) {
    for (const Piece& piece : pieces(shard))
      total_ += piece.count * size_of(*folder_.tensor(name(piece), shard.dtype).dtype);
  }

  void fill(const StateShard& shard) {
    const FlatUnit& unit = place_.layout->unit(shard.unit);
    const std::int64_t begin = place_.shard_index * unit.shard_elements, size = size_of(shard.dtype);
    std::memset(shard.data, 0, static_cast<std::size_t>(unit.shard_elements * size));
    for (const Piece& piece : pieces(shard)) {
      std::byte* to = shard.data + (piece.flat_begin - begin) * size;
      const ParameterShape& p = place_.layout->parameters()[static_cast<std::size_t>(piece.parameter)];
      const int tensor_index = p.slice.dim >= 0 ? place_.at[Axis::tensor] : 0;
      for (const LogicalRun& run :
           place_.layout->logical_runs(piece.parameter, tensor_index, piece.slice_begin, piece.count))
        copy(p.name, run, to + (run.slice_begin - piece.slice_begin) * size, shard.dtype);
    }
  }

  std::int64_t done() const { return done_; }

 private:
  std::vector<Piece> pieces(const StateShard& shard) const {
    const FlatUnit& unit = place_.layout->unit(shard.unit);
    const std::int64_t begin = place_.shard_index * unit.shard_elements;
    return place_.layout->pieces(shard.unit, begin, begin + unit.shard_elements);
  }
  const std::string& name(const Piece& piece) const {
    return place_.layout->parameters()[static_cast<std::size_t>(piece.parameter)].name;
  }

  void copy(const std::string& name, const LogicalRun& run, std::byte* to, DType dtype) {
    const SafeTensor& tensor = folder_.tensor(name, dtype);
    const PosixFile& file = folder_.file(name);
    const std::int64_t size = size_of(*tensor.dtype), per_block = block_bytes / size;
    for (std::int64_t i = 0; i < run.count; i += per_block) {
      const std::int64_t n = std::min(per_block, run.count - i);
      file.read_at(block_.data(), n * size, tensor.begin + (run.logical_begin + i) * size);
      std::byte* here = to + i * size_of(dtype);
      convert(block_.data(), *tensor.dtype, here, dtype, n);
      REQUIRE(all_finite(here, dtype, n),
              "{}: tensor {} holds NaN or infinity, or what {} cannot hold (elements {} to {}); {}",
              file.path().string(), name, name_of(dtype), run.logical_begin + i,
              run.logical_begin + i + n - 1, advice);
      done_ += n * size;
      if (progress_) progress_(done_, total_);
    }
  }

  const Folder& folder_;
  const Place& place_;
  const Progress& progress_;
  std::vector<std::byte> block_;
  std::int64_t done_ = 0, total_ = 0;
};

}  // namespace

std::int64_t import_weights(const fs::path& folder, const Place& place, std::span<const StateShard> shards,
                            const Progress& progress) {
  const Folder opened(folder);
  opened.require_parameters(place.layout->parameters());
  Importer importer(opened, place, progress);
  for (const StateShard& shard : shards) importer.count(shard);
  for (const StateShard& shard : shards) importer.fill(shard);
  return importer.done();
}

std::int64_t require_weights(const fs::path& folder, std::span<const ParameterShape> parameters) {
  const Folder opened(folder);
  opened.require_parameters(parameters);
  std::int64_t bytes = 0;
  for (const ParameterShape& p : parameters) bytes += opened.tensor(p.name, DType::f32).bytes;
  return bytes;
}

}  // namespace ztrain::checkpoint
