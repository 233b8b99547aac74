#include "checkpoint/export.hpp"

#include <algorithm>
#include <map>
#include <system_error>
#include <vector>

#include "base/error.hpp"
#include "checkpoint/convert.hpp"
#include "checkpoint/reader.hpp"
#include "checkpoint/safetensors.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t block_items = std::int64_t{1} << 20;

/// A range of tensors that share a file.
struct File {
  std::string name;
  std::size_t first = 0, count = 0;
};

std::vector<SafeTensor> tensors_of(const Catalog& catalog, DType dtype) {
  std::vector<SafeTensor> tensors;
  for (const ParameterEntry& p : catalog.parameters)
    tensors.push_back(
        {p.name, safetensors_dtype(dtype), dtype, p.shape, 0, elements(p.shape) * size_of(dtype)});
  return tensors;
}

/// Fills one file after the other.
std::vector<File> files_of(const std::vector<SafeTensor>& tensors, std::int64_t max_bytes) {
  std::vector<File> files;
  std::int64_t bytes = 0;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    if (files.empty() || bytes + tensors[t].bytes > max_bytes) {
      files.push_back({"", t, 0});
      bytes = 0;
    }
    ++files.back().count;
    bytes += tensors[t].bytes;
  }
  for (std::size_t f = 0; f < files.size(); ++f)
    files[f].name = files.size() == 1 ? single_safetensors
                                      : fmt::format("model-{:05}-of-{:05}.safetensors", f + 1, files.size());
  return files;
}

void write_text(const fs::path& path, const std::string& text) {
  PosixFile file = PosixFile::create(path);
  file.write_at(text.data(), std::ssize(text), 0);
  file.sync();
  file.close();
}

class Exporter {
 public:
  Exporter(const fs::path& checkpoint, const ExportOptions& options, const Progress& progress)
      : checkpoint_(checkpoint),
        reader_(checkpoint, true),
        dtype_(options.dtype),
        progress_(progress),
        tensors_(tensors_of(reader_.catalog(), dtype_)),
        files_(files_of(tensors_, options.max_shard_bytes)),
        block_(static_cast<std::size_t>(block_items * size_of(dtype_))) {
    for (const SafeTensor& t : tensors_) total_ += t.bytes;
    const auto& states = reader_.catalog().states;
    const auto model = std::ranges::find(states, "model", &StateEntry::name);
    REQUIRE(model != states.end(), "{}: holds no weights", checkpoint.string());
    model_ = model - states.begin();
  }

  Exported write_to(const fs::path& folder) {
    std::map<std::string, std::string> file_of;
    for (const File& file : files_) {
      write_file(folder / file.name, file);
      for (const SafeTensor& t : std::span(tensors_).subspan(file.first, file.count))
        file_of[t.name] = file.name;
    }
    if (files_.size() > 1) write_text(folder / safetensors_index_name, safetensors_index(file_of, total_));
    return {std::ssize(tensors_), total_, std::ssize(files_)};
  }

  std::int64_t total_bytes() const { return total_; }

 private:
  void write_file(const fs::path& path, const File& file) {
    PosixFile out = PosixFile::create(path);
    const std::string header = safetensors_header(std::span(tensors_).subspan(file.first, file.count));
    out.write_at(header.data(), std::ssize(header), 0);
    std::int64_t offset = std::ssize(header);
    for (std::size_t t = file.first; t < file.first + file.count; ++t) {
      write_tensor(out, offset, static_cast<std::int64_t>(t));
      offset += tensors_[t].bytes;
    }
    out.sync();
    out.close();
  }

  /// parameter: its place in the catalog, which is the tensor's.
  void write_tensor(const PosixFile& out, std::int64_t offset, std::int64_t parameter) {
    const SafeTensor& tensor = tensors_[static_cast<std::size_t>(parameter)];
    const std::int64_t count = elements(tensor.shape), size = size_of(dtype_);
    for (std::int64_t begin = 0; begin < count; begin += block_items) {
      const Wanted wanted{{}, 0, begin, std::min(block_items, count - begin)};
      std::int64_t found = 0;
      for (const PieceRow& piece : reader_.pieces(model_, parameter))
        found += reader_.read(piece, wanted, block_.data(), dtype_);
      REQUIRE(found == wanted.count, "{}: holds {} of {} elements of {}", checkpoint_.string(), found,
              wanted.count, tensor.name);
      REQUIRE(all_finite(block_.data(), dtype_, wanted.count),
              "{}: {} holds NaN or infinity, or what {} cannot hold: export another checkpoint, or with "
              "another --dtype",
              checkpoint_.string(), tensor.name, name_of(dtype_));
      out.write_at(block_.data(), wanted.count * size, offset + begin * size);
      done_ += wanted.count * size;
      if (progress_) progress_(done_, total_);
    }
  }

  fs::path checkpoint_;
  Reader reader_;
  DType dtype_;
  const Progress& progress_;
  std::vector<SafeTensor> tensors_;
  std::vector<File> files_;
  std::vector<std::byte> block_;
  std::int64_t model_ = 0, done_ = 0, total_ = 0;
};

/// Makes folder.tmp, which must not exist, as must folder.
fs::path make_unfinished(const fs::path& folder, std::int64_t bytes) {
  const fs::path unfinished = folder.string() + ".tmp", parent = folder.parent_path();
  REQUIRE(!fs::exists(folder), "'{}' exists: give another folder with --to, or remove it", folder.string());
  REQUIRE(!fs::exists(unfinished), "'{}' exists, from an export that was interrupted: remove it",
          unfinished.string());
  std::error_code error;
  fs::create_directories(parent, error);
  const fs::space_info space = fs::space(parent, error);
  REQUIRE(error || space.available >= static_cast<std::uintmax_t>(bytes),
          "'{}' has {} bytes left, and the weights take {}: make room, or give a folder elsewhere with --to",
          parent.string(), space.available, bytes);
  REQUIRE(!error && fs::create_directory(unfinished, error), "cannot make the folder '{}': {}",
          unfinished.string(), error.message());
  return unfinished;
}

}  // namespace

Exported export_weights(const fs::path& checkpoint, const fs::path& folder,
                        std::span<const SideFile> side_files, const ExportOptions& options,
                        const Progress& progress) {
  Exporter exporter(checkpoint, options, progress);
  fs::path target = fs::absolute(folder).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  const fs::path unfinished = make_unfinished(target, exporter.total_bytes());
  try {
    const Exported exported = exporter.write_to(unfinished);
    for (const SideFile& file : side_files) write_text(unfinished / file.name, file.text);
    sync_folder(unfinished);
    fs::rename(unfinished, target);
    sync_folder(target.parent_path());
    return exported;
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(unfinished, ignored);
    throw;
  }
}

}  // namespace ztrain::checkpoint
