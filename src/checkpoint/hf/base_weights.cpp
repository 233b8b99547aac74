#include "checkpoint/hf/base_weights.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "checkpoint/format/convert.hpp"
#include "checkpoint/hf/adapters.hpp"
#include "config/hf/reward_model.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Reads weights as values of the dtypes to which a run had rounded them.
class RoundedWeights : public WrappedWeights {
 public:
  RoundedWeights(std::unique_ptr<WeightSource> source, const FrozenBase& base)
      : WrappedWeights(std::move(source)), base_(base) {
    for (const auto& [name, values] : base_.parameters)
      if (const auto found = source_->shapes().find(name); found != source_->shapes().end())
        shapes_[name] = found->second;
  }

  bool may_be_left(const std::string&) const override { return false; }
  std::int64_t element_size(const std::string& name, DType) const override {
    return source_->element_size(name, base_.parameters.at(name).dtype);
  }

  void read(const std::string& name, std::int64_t begin, std::int64_t count, std::byte* data,
            DType to) override {
    const DType dtype = base_.parameters.at(name).dtype;
    if (dtype == to) return source_->read(name, begin, count, data, to);
    block_.resize(static_cast<std::size_t>(count * size_of(dtype)));
    source_->read(name, begin, count, block_.data(), dtype);
    convert(block_.data(), dtype, data, to, count);
  }

 private:
  FrozenBase base_;
  std::vector<std::byte> block_;
};

std::vector<ParameterShape> shapes_in(const Catalog& catalog) {
  std::vector<ParameterShape> shapes;
  for (const ParameterEntry& p : catalog.parameters)
    shapes.push_back({.name = p.name, .shape = p.shape, .slice = {}, .adapter = is_adapter(p.name)});
  return shapes;
}

ValueHashes hashes_as_saved(std::span<const ParameterShape> parameters, const FrozenBase& saved) {
  ValueHashes hashes(parameters);
  for (std::size_t p = 0; p < parameters.size(); ++p)
    if (const auto found = saved.parameters.find(parameters[p].name); found != saved.parameters.end())
      hashes.set_dtype(p, found->second.dtype);
  return hashes;
}

}  // namespace

void require_same_base(const Group& world, const std::string& checkpoint,
                       std::span<const ParameterShape> parameters, const BaseRead& read) {
  FrozenBase saved;
  world.together([&] { saved = *frozen_base_of(read_metadata(checkpoint), checkpoint); });
  FrozenBase now = saved;
  now.from = read.folder;
  set_hashes(now, world, parameters, read.hashes,
             [&](const ParameterShape& p) { return saved.parameters.contains(p.name); });
  world.together([&] {
    require_same_base(checkpoint, saved, now,
                      fmt::format("give the folder that it was trained beside ({})", base_options));
  });
}

void require_same_base(const Group& world, const std::string& checkpoint, const std::string& given) {
  std::optional<FrozenBase> saved;
  std::vector<ParameterShape> parameters;
  std::optional<BaseRead> read;
  world.together([&] {
    saved = frozen_base_of(read_metadata(checkpoint), checkpoint);
    if (!saved) return;
    const Index index = read_index(fs::path(checkpoint) / index_name);
    parameters = shapes_in(index.catalog);
    read.emplace(BaseRead{given.empty() ? saved->from : given, hashes_as_saved(parameters, *saved)});
    const auto source = open_base(checkpoint, index.catalog, given);
    std::vector<std::byte> block(static_cast<std::size_t>(block_elements * size_of(DType::f64)));
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      const auto found = saved->parameters.find(parameters[p].name);
      if (found == saved->parameters.end()) continue;
      const std::int64_t all = elements(parameters[p].shape), last = all * (world.rank() + 1) / world.size();
      for (std::int64_t at = all * world.rank() / world.size(), n = 0; at < last; at += n) {
        n = std::min(block_elements, last - at);
        source->read(found->first, at, n, block.data(), found->second.dtype);
        read->hashes.add(p, at, n, block.data(), found->second.dtype);
      }
    }
  });
  if (saved) require_same_base(world, checkpoint, parameters, *read);
}

std::optional<BaseRead> base_to_read(const fs::path& checkpoint, std::span<const ParameterShape> parameters,
                                     const std::string& given) {
  const auto saved = frozen_base_of(read_metadata(checkpoint), checkpoint.string());
  if (!saved) return std::nullopt;
  return BaseRead{given.empty() ? saved->from : given, hashes_as_saved(parameters, *saved)};
}

std::unique_ptr<WeightSource> open_base(const fs::path& checkpoint, const Catalog& catalog,
                                        const std::string& given) {
  if (std::ranges::none_of(catalog.parameters, &ParameterEntry::elsewhere)) return nullptr;
  const auto saved = frozen_base_of(read_metadata(checkpoint), checkpoint.string());
  REQUIRE(saved, "{}: lacks frozen weights, and its metadata do not say where these are",
          checkpoint.string());
  const std::string& folder = given.empty() ? saved->from : given;
  REQUIRE(!folder.empty(),
          "{}: holds what was trained alone, and the frozen weights beside it were drawn from seed {} "
          "(lora.random_base): {}",
          checkpoint.string(), saved->seed,
          saved->quantized.form.any() ? "nothing holds those of which the run kept codes (lora.quantization)"
                                      : "a run with checkpoint.frozen = true keeps these in its checkpoints");
  std::error_code unknown;
  REQUIRE(
      fs::exists(folder, unknown),
      "{}: holds what was trained alone; the frozen weights beside it were read from '{}', and '{}' is not "
      "there: give the folder that has them now ({})",
      checkpoint.string(), saved->from, folder, base_options);
  const std::vector<ParameterShape> shapes = shapes_in(catalog);
  return std::make_unique<RoundedWeights>(
      with_codes(open_model_weights(folder, shapes,
                                    {.leaves_head = saved->leaves_head,
                                     .added = saved->added,
                                     .may_lack = {config::score_weight},
                                     .architecture = &config::find_architecture(saved->family),
                                     .base = given.empty() ? saved->base : ""}),
                 saved->quantized),
      *saved);
}

}  // namespace ztrain::checkpoint
