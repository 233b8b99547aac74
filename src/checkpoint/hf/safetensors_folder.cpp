#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/text.hpp"
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
  SafetensorsFolder(const fs::path& folder, const char* single) : folder_(folder) {
    if (file_exists(folder / single, "model.from")) {
      add(single);
      join_scales();
      return;
    }
    const fs::path index = folder / safetensors_index_name;
    REQUIRE(file_exists(index, "model.from"), "model.from: '{}' holds neither {} nor {}; {}", folder.string(),
            single_safetensors, safetensors_index_name, advice_on(folder));
    const auto file_of = parse_safetensors_index(read_file(index, largest_index), index.string());
    std::set<std::string> files;
    for (const auto& [name, file] : file_of) files.insert(file);
    std::vector<std::string> absent;
    for (const std::string& file : files)
      if (!file_exists(folder / file, "model.from")) absent.push_back(printable(file, most_quoted));
    REQUIRE(absent.empty(), "{}: {} of the {} that it says weights are in {} not there:{}\n{}",
            index.string(), absent.size(), count_text(std::ssize(files), "file"),
            absent.size() == 1 ? "is" : "are", list_lines(absent, 2), folder_advice);
    for (const std::string& file : files) add(file, file_of);
    for (const auto& [name, file] : file_of) {
      const auto at = entries_.find(name);
      REQUIRE(at != entries_.end() && files_[at->second.file].path() == folder / file,
              "{}: says that {} is in {}, which does not hold it; {}", index.string(),
              printable(name, most_quoted), printable(file, most_quoted), folder_advice);
    }
    join_scales();
  }

  bool may_be_left(const std::string& name) const override {
    return name == config::head_weight || name.ends_with("rotary_emb.inv_freq");
  }

  const char* advice() const override { return folder_advice; }

  std::int64_t element_size(const std::string& name, DType to) const override {
    const Entry& entry = entries_.at(name);
    if (entry.scales) return 1;  // Half a byte and its share of the scale are less.
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
    const PosixFile& file = files_[entry.file];
    if (entry.scales) {
      read_mxfp4(entry, begin, count);
      convert(reinterpret_cast<const std::byte*>(decoded_.data()), DType::f32, data, to, count);
    } else {
      const DType from = *entry.tensor.dtype;
      block_.resize(static_cast<std::size_t>(from == to ? 0 : count * size));
      std::byte* bytes = from == to ? data : block_.data();
      read_bytes(entry, begin * size, count * size, bytes);
      if (from != to) convert(bytes, from, data, to, count);
    }
    REQUIRE(all_finite(data, to, count),
            "{}: tensor {} holds NaN or infinity, or what {} cannot hold (elements {} to {}); {}",
            file.path().string(), name, name_of(to), begin, begin + count - 1, folder_advice);
  }

 private:
  struct Entry {
    std::size_t file;
    SafeTensor tensor;
    std::shared_ptr<const Entry> scales{};  ///< scales of a tensor in MXFP4; null for others
  };

  /// Reads bytes of a tensor.
  void read_bytes(const Entry& entry, std::int64_t begin, std::int64_t count, std::byte* to) const {
    const std::int64_t offset = entry.tensor.begin + begin;
    files_[entry.file].read_at(to, count, offset);
    // Reads ahead what is most often asked for next: the disk works while these bytes are processed.
    files_[entry.file].read_ahead(2 * count, offset + count);
  }

  /// Decodes elements of a tensor in MXFP4 to decoded_.
  void read_mxfp4(const Entry& entry, std::int64_t begin, std::int64_t count) {
    constexpr std::int64_t code_bytes = mxfp4_block / 2;
    const std::int64_t first = begin / mxfp4_block, blocks = ceil_div(begin + count, mxfp4_block) - first;
    block_.resize(static_cast<std::size_t>(blocks * (code_bytes + 1)));
    std::byte* const scales = block_.data() + blocks * code_bytes;
    read_bytes(entry, first * code_bytes, blocks * code_bytes, block_.data());
    read_bytes(*entry.scales, first, blocks, scales);
    decoded_.resize(static_cast<std::size_t>(count));
    decode_mxfp4(block_.data(), scales, begin, count, decoded_.data());
  }

  /// Makes one tensor of 4-bit floats of each "..._blocks" [..., blocks, 16] and its "..._scales" [...,
  /// blocks], as gpt-oss has them.
  void join_scales() {
    constexpr std::string_view blocks_ending = "_blocks";
    for (auto& [name, entry] : entries_) {
      const SafeTensor& t = entry.tensor;
      if (t.dtype != DType::u8 || !name.ends_with(blocks_ending)) continue;
      const std::string scales = name.substr(0, name.size() - blocks_ending.size()) + "_scales";
      const std::string where = files_[entry.file].path().string();
      const auto at = entries_.find(scales);
      REQUIRE(at != entries_.end(), "{}: tensor {} has no {} beside it; {}", where, name, scales,
              folder_advice);
      Shape shape = t.shape;
      REQUIRE(shape.size() > 1 && shape.back() == mxfp4_block / 2 && at->second.tensor.dtype == DType::u8 &&
                  at->second.tensor.shape == Shape(shape.begin(), shape.end() - 1),
              "{}: tensors {} {} and {} {} are not MXFP4: ztrain reads uint8 [..., 16] with uint8 scales "
              "[...]; {}",
              where, name, to_string(shape), scales, to_string(at->second.tensor.shape), folder_advice);
      shape.pop_back();
      shape.back() *= mxfp4_block;
      entry.scales = std::make_shared<const Entry>(at->second);
      shapes_[name] = std::move(shape);
      shapes_.erase(scales);
    }
  }

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
  std::vector<float> decoded_;
};

}  // namespace

std::unique_ptr<WeightSource> open_safetensors_folder(const fs::path& folder, const char* single) {
  return std::make_unique<SafetensorsFolder>(folder, single);
}

}  // namespace ztrain::checkpoint
