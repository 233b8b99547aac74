#include "checkpoint/hf/export.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "checkpoint/format/convert.hpp"
#include "checkpoint/hf/adapters.hpp"
#include "checkpoint/hf/base_weights.hpp"
#include "checkpoint/hf/export_folder.hpp"
#include "checkpoint/hf/export_plan.hpp"
#include "checkpoint/rank_group.hpp"
#include "checkpoint/reader.hpp"
#include "config/adapters.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Most elements of a block; fewer of a tensor that is wider than the export's dtype.
constexpr std::int64_t block_items = std::int64_t{1} << 20;

/// A checkpoint, with the frozen weights that it may not hold.
class CheckpointSource : public ExportSource {
 public:
  CheckpointSource(const fs::path& folder, const ExportOptions& options)
      : folder_(folder), reader_(folder, true), values_(options.values) {
    for (std::int64_t p = 0; p < std::ssize(catalog().parameters); ++p) reader_.weights(p, values_);
    // Adapters alone are exported without their base.
    if (options.content == ExportContent::model) base_ = open_base(folder, catalog(), options.base);
  }

  const Catalog& catalog() const override { return reader_.catalog(); }

  void read(std::int64_t parameter, std::int64_t begin, std::int64_t count, std::byte* to,
            DType dtype) override {
    const ParameterEntry& entry = catalog().parameters[static_cast<std::size_t>(parameter)];
    if (entry.elsewhere) return base_->read(entry.name, begin, count, to, dtype);
    const Wanted wanted{{}, 0, begin, count};
    std::int64_t found = 0;
    for (const PieceRow& piece : reader_.weights(parameter, values_))
      found += reader_.read(piece, wanted, to, dtype);
    REQUIRE(found == count, "{}: holds {} of {} elements of {}", folder_.string(), found, count, entry.name);
  }

 private:
  fs::path folder_;
  Reader reader_;
  WeightValues values_;
  std::unique_ptr<WeightSource> base_;  ///< null if the checkpoint holds all weights
};

/// A folder of PEFT's, with the model that it belongs to.
class PeftSource : public ExportSource {
 public:
  PeftSource(const fs::path& folder, const ExportOptions& options)
      : weights_(open_model_weights(folder, options.parameters,
                                    {.architecture = options.architecture, .base = options.base})) {
    for (const ParameterShape& p : options.parameters)
      catalog_.parameters.push_back({p.name, p.shape, !p.trainable});
  }

  const Catalog& catalog() const override { return catalog_; }
  void read(std::int64_t parameter, std::int64_t begin, std::int64_t count, std::byte* to,
            DType dtype) override {
    weights_->read(catalog_.parameters[static_cast<std::size_t>(parameter)].name, begin, count, to, dtype);
  }

 private:
  std::unique_ptr<WeightSource> weights_;
  Catalog catalog_;
};

std::unique_ptr<ExportSource> open_source(const fs::path& folder, const ExportOptions& options) {
  if (options.parameters.empty()) return std::make_unique<CheckpointSource>(folder, options);
  return std::make_unique<PeftSource>(folder, options);
}

/// Exports one rank's part of the bytes of all tensors.
class Exporter {
 public:
  Exporter(const fs::path& checkpoint, const ExportOptions& options, const Progress& progress, int rank,
           int ranks)
      : checkpoint_(checkpoint),
        options_(options),
        progress_(progress),
        source_(open_source(checkpoint, options)),
        plan_(plan_export(source_->catalog(), checkpoint.string(), options)),
        block_(static_cast<std::size_t>(block_items * size_of(options.dtype))) {
    if (plan_.rank > 0)
      merger_.emplace(*source_,
                      config::adapter_scale(options.adapters.alpha, plan_.rank, options.adapters.rslora));
    begin_ = plan_.bytes / ranks * rank;
    end_ = rank + 1 == ranks ? plan_.bytes : plan_.bytes / ranks * (rank + 1);
  }

  const ExportPlan& plan() const { return plan_; }

  /// Makes the files with their headers.
  void create_files(const fs::path& folder) const {
    for (const PlannedFile& file : plan_.files) {
      const std::string header = header_of(file);
      require_file_size(folder / file.name, std::ssize(header) + bytes_of(file));
      write_file(folder / file.name, header, options_.keys.folder);
    }
  }

  /// Writes the blocks that begin in this rank's part.
  void write_blocks(const fs::path& folder) {
    std::int64_t before = 0;  // bytes of tensors before the file
    for (const PlannedFile& file : plan_.files) {
      const std::int64_t bytes = bytes_of(file);
      if (before < end_ && before + bytes > begin_) write_share(folder / file.name, file, before);
      before += bytes;
    }
    done_ = end_ - begin_;  // sets it even if no block begins in the part
    tell();
  }

  void tell() const {
    if (progress_) progress_(done_, end_ - begin_);
  }

 private:
  std::string header_of(const PlannedFile& file) const {
    return safetensors_header(std::span(plan_.tensors).subspan(file.first, file.count));
  }
  std::int64_t bytes_of(const PlannedFile& file) const {
    std::int64_t bytes = 0;
    for (std::size_t t = file.first; t < file.first + file.count; ++t) bytes += plan_.tensors[t].bytes;
    return bytes;
  }

  DType dtype_of(std::size_t tensor) const { return *plan_.tensors[tensor].dtype; }

  void write_share(const fs::path& path, const PlannedFile& file, std::int64_t before) {
    PosixFile out = PosixFile::open_to_write(path, options_.keys.folder);
    const std::int64_t data = std::ssize(header_of(file));
    std::int64_t at = 0;
    for (std::size_t t = file.first; t < file.first + file.count; ++t) {
      write_tensor(out, data + at, before + at, t);
      at += plan_.tensors[t].bytes;
    }
    out.sync();
    out.close();
  }

  /// offset is that of the tensor in the file; before counts bytes of tensors before it, over all files.
  void write_tensor(const PosixFile& out, std::int64_t offset, std::int64_t before, std::size_t tensor) {
    const std::int64_t count = elements(plan_.tensors[tensor].shape), size = size_of(dtype_of(tensor)),
                       most = std::ssize(block_) / size;
    for (std::int64_t begin = 0; begin < count; begin += most) {
      const std::int64_t at = before + begin * size, n = std::min(most, count - begin);
      if (at < begin_ || at >= end_) continue;
      make_block(tensor, begin, n);
      out.write_at(block_.data(), n * size, offset + begin * size);
      done_ = std::min(done_ + n * size, end_ - begin_);
      tell();
    }
  }

  /// Makes elements [begin, begin + count) of a tensor as they are to be written.
  void make_block(std::size_t tensor, std::int64_t begin, std::int64_t count) {
    const TensorSource& source = plan_.sources[tensor];
    const DType dtype = dtype_of(tensor);
    const std::int64_t size = size_of(dtype);
    if (source.parts.empty())
      convert(reinterpret_cast<const std::byte*>(&source.value), DType::f64, block_.data(), dtype, 1);
    for (std::int64_t at = begin, n = 0; source.unit > 0 && at < begin + count; at += n) {
      hold_unit(tensor, at / source.unit);
      n = std::min(begin + count, (at / source.unit + 1) * source.unit) - at;
      std::memcpy(block_.data() + (at - begin) * size, unit_.data() + at % source.unit * size,
                  static_cast<std::size_t>(n * size));
    }
    for (const SourcePart& part : source.parts) {
      if (source.unit > 0) break;
      const std::int64_t first = std::max(begin, part.first),
                         last = std::min(begin + count, part.first + part.count);
      if (first < last)
        make_part(part, first - part.first, last - first, block_.data() + (first - begin) * size, dtype);
    }
    REQUIRE(all_finite(block_.data(), dtype, count),
            "{}: {} holds NaN or infinity, or what {} cannot hold: export another checkpoint, or with "
            "another {}",
            checkpoint_.string(), plan_.tensors[tensor].name, name_of(dtype), options_.keys.dtype);
  }

  /// Makes elements [begin, begin + count) of a part's matrix in a dtype.
  void make_part(const SourcePart& part, std::int64_t begin, std::int64_t count, std::byte* to, DType dtype) {
    if (!part.added) {
      source_->read(part.parameter, part.from + begin, count, to, dtype);
      return;
    }
    wide_.resize(static_cast<std::size_t>(block_items));
    auto* const bytes = reinterpret_cast<std::byte*>(wide_.data());
    source_->read(part.parameter, part.from + begin, count, bytes, DType::f32);
    merger_->add(*part.added, wide_.data(), part.from + begin, count);
    convert(bytes, DType::f32, to, dtype, count);
  }

  /// Makes a unit of a tensor whose parts lie scattered in it, unless it is held already.
  void hold_unit(std::size_t tensor, std::int64_t index) {
    if (held_ == std::pair(tensor, index)) return;
    const TensorSource& source = plan_.sources[tensor];
    const DType dtype = dtype_of(tensor);
    const std::int64_t size = size_of(dtype), most = std::ssize(block_) / size;
    unit_.resize(static_cast<std::size_t>(source.unit * size));
    part_.resize(block_.size());
    for (const SourcePart& part : source.parts) {
      if (part.first / source.unit != index) continue;
      for (std::int64_t begin = 0; begin < part.count; begin += most) {
        const std::int64_t count = std::min(most, part.count - begin);
        make_part(part, begin, count, part_.data(), dtype);
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t row = (begin + i) / part.columns, column = (begin + i) % part.columns,
                             to = part.first % source.unit + row * part.row_stride +
                                  column * part.column_stride;
          std::memcpy(unit_.data() + to * size, part_.data() + i * size, static_cast<std::size_t>(size));
        }
      }
    }
    held_ = {tensor, index};
  }

  fs::path checkpoint_;
  const ExportOptions& options_;
  const Progress& progress_;
  std::unique_ptr<ExportSource> source_;
  ExportPlan plan_;
  std::optional<Merger> merger_;
  std::vector<std::byte> block_;
  std::vector<float> wide_;      ///< a block before it is rounded
  std::vector<std::byte> part_;  ///< a block of a part of unit_
  std::vector<std::byte> unit_;  ///< a unit of a tensor whose parts lie scattered in it
  std::optional<std::pair<std::size_t, std::int64_t>> held_;  ///< tensor and index of the unit
  std::int64_t begin_ = 0, end_ = 0, done_ = 0;
};

void write_small_files(const ExportFolder& folder, const ExportPlan& plan,
                       std::span<const SideFile> side_files) {
  if (plan.files.size() > 1) {
    std::map<std::string, std::string> file_of;
    for (const PlannedFile& file : plan.files)
      for (std::size_t t = file.first; t < file.first + file.count; ++t)
        file_of[plan.tensors[t].name] = file.name;
    folder.write_text({safetensors_index_name, safetensors_index(file_of, plan.bytes)});
  }
  if (!plan.adapter_config.empty()) folder.write_text({"adapter_config.json", plan.adapter_config});
  for (const SideFile& file : side_files) folder.write_text(file);
}

}  // namespace

Exported export_weights(const fs::path& checkpoint, const fs::path& folder,
                        std::span<const SideFile> side_files, const ExportOptions& options,
                        const Progress& progress) {
  const Group world = Group::world();
  const bool first = world.rank() == 0;
  std::optional<Exporter> exporter;
  std::optional<ExportFolder> target;
  const auto waiting = [&] {
    if (exporter) exporter->tell();
  };
  const fs::path unfinished = ExportFolder::unfinished_path(folder);
  world.together([&] { exporter.emplace(checkpoint, options, progress, world.rank(), world.size()); },
                 waiting);
  const ExportPlan& plan = exporter->plan();
  if (options.content == ExportContent::model && options.parameters.empty())
    require_same_base(world, checkpoint.string(), options.base);
  try {
    world.together(
        [&] {
          if (!first) return;
          target.emplace(folder, plan.bytes, options.keys);
          exporter->create_files(unfinished);
        },
        waiting);
    world.together([&] { exporter->write_blocks(unfinished); }, waiting);
    world.together(
        [&] {
          if (!first) return;
          write_small_files(*target, plan, side_files);
          target->publish();
        },
        waiting);
  } catch (const Error&) {
    if (target) target->discard();
    throw;
  }
  Exported exported{std::ssize(plan.tensors), plan.bytes, std::ssize(plan.files)};
  exported.removed_remains = target && target->removed_remains();
  return exported;
}

}  // namespace ztrain::checkpoint
