#include <set>
#include <vector>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "checkpoint/format/convert.hpp"
#include "checkpoint/hf/weight_source.hpp"
#include "config/architectures.hpp"
#include "config/hf/starting_point.hpp"
#include "files/file.hpp"
#include "files/safetensors.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t largest_index = largest_safetensors_header;

constexpr const char* folder_advice =
    "give a complete folder whose weights are those of its config.json (model.from)";

/// Returns advice on a folder without safetensors files.
std::string advice_on(const fs::path& folder) {
  if (std::string other = config::other_format_in(folder); !other.empty()) return other;
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
    if (std::error_code unknown; fs::exists(folder / name, unknown))
      return fmt::format(
          "it has {}, which only PyTorch reads: write safetensors beside it with `python3 -c \"from "
          "transformers import AutoModelForCausalLM as M; M.from_pretrained('{}').save_pretrained('{}')\"`",
          name, folder.string(), folder.string());
  return folder_advice;
}

class SafetensorsFolder : public WeightSource {
 public:
  explicit SafetensorsFolder(const fs::path& folder) : folder_(folder) {
    if (file_exists(folder / single_safetensors, "model.from")) {
      add(single_safetensors);
      return;
    }
    const fs::path index = folder / safetensors_index_name;
    REQUIRE(file_exists(index, "model.from"), "model.from: '{}' holds neither {} nor {}; {}", folder.string(),
            single_safetensors, safetensors_index_name, advice_on(folder));
    const auto file_of = parse_safetensors_index(read_file(index, largest_index), index.string());
    std::set<std::string> files;
    for (const auto& [name, file] : file_of) files.insert(file);
    for (const std::string& file : files) {
      REQUIRE(file_exists(folder / file, "model.from"),
              "{}: says that weights are in {}, which is not there; {}", index.string(),
              printable(file, most_quoted), folder_advice);
      add(file, file_of);
    }
    for (const auto& [name, file] : file_of) {
      const auto at = entries_.find(name);
      REQUIRE(at != entries_.end() && files_[at->second.file].path() == folder / file,
              "{}: says that {} is in {}, which does not hold it; {}", index.string(),
              printable(name, most_quoted), printable(file, most_quoted), folder_advice);
    }
  }

  bool may_be_left(const std::string& name) const override {
    return name == config::head_weight || name.ends_with("rotary_emb.inv_freq");
  }

  const char* advice() const override { return folder_advice; }

  std::int64_t element_size(const std::string& name, DType to) const override {
    const Entry& entry = entries_.at(name);
    const auto& dtype = entry.tensor.dtype;
    REQUIRE(
        dtype && converts(*dtype, to),
        "{}: tensor {} is {}: ztrain reads F64, F32, BF16 and F16 weights; save the model in one of these",
        files_[entry.file].path().string(), name, entry.tensor.dtype_name);
    return size_of(*dtype);
  }

  void read(const std::string& name, std::int64_t begin, std::int64_t count, std::byte* data,
            DType to) override {
    const std::int64_t size = element_size(name, to);
    const Entry& entry = entries_.at(name);
    const DType from = *entry.tensor.dtype;
    const PosixFile& file = files_[entry.file];
    block_.resize(static_cast<std::size_t>(from == to ? 0 : count * size));
    std::byte* bytes = from == to ? data : block_.data();
    const std::int64_t offset = entry.tensor.begin + begin * size;
    file.read_at(bytes, count * size, offset);
    // Reads ahead what is most often asked for next: the disk works while these bytes are processed.
    file.read_ahead(2 * count * size, offset + count * size);
    if (from != to) convert(bytes, from, data, to, count);
    REQUIRE(all_finite(data, to, count),
            "{}: tensor {} holds NaN or infinity, or what {} cannot hold (elements {} to {}); {}",
            file.path().string(), name, name_of(to), begin, begin + count - 1, folder_advice);
  }

 private:
  struct Entry {
    std::size_t file;
    SafeTensor tensor;
  };

  /// Takes the tensors of a file. If another file holds one of the same name, the index decides.
  void add(const std::string& name, const std::map<std::string, std::string>& file_of = {}) {
    files_.push_back(PosixFile::open_to_read(folder_ / name));
    for (SafeTensor& t : read_safetensors(files_.back())) {
      if (const auto indexed = file_of.find(t.name); indexed != file_of.end() && indexed->second != name)
        continue;
      const auto [at, is_new] = entries_.try_emplace(t.name, files_.size() - 1, t);
      REQUIRE(is_new, "{}: tensor {} is in {} too", files_.back().path().string(), t.name,
              files_[at->second.file].path().string());
      shapes_[t.name] = t.shape;
    }
  }

  fs::path folder_;
  std::vector<PosixFile> files_;
  std::map<std::string, Entry> entries_;
  std::vector<std::byte> block_;
};

}  // namespace

std::unique_ptr<WeightSource> open_safetensors_folder(const fs::path& folder) {
  return std::make_unique<SafetensorsFolder>(folder);
}

}  // namespace ztrain::checkpoint
