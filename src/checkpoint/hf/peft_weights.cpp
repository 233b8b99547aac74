#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "checkpoint/hf/adapters.hpp"
#include "checkpoint/hf/weight_source.hpp"
#include "config/hf/peft_config.hpp"

namespace ztrain::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Adapters of PEFT's folder, with what else of the model was trained, over the weights of a model.
class PeftWeights : public WrappedWeights {
 public:
  PeftWeights(std::unique_ptr<WeightSource> trained, std::unique_ptr<WeightSource> base,
              std::set<std::string> names)
      : WrappedWeights(std::move(base)), trained_(std::move(trained)), names_(std::move(names)) {
    shapes_ = source_->shapes();
    for (const std::string& name : names_) shapes_[name] = trained_->shapes().at(name);
  }

  std::int64_t element_size(const std::string& name, DType to) const override {
    return names_.contains(name) ? trained_->element_size(name, to) : source_->element_size(name, to);
  }
  void read(const std::string& name, std::int64_t begin, std::int64_t count, std::byte* data,
            DType to) override {
    (names_.contains(name) ? trained_ : source_)->read(name, begin, count, data, to);
  }

 private:
  std::unique_ptr<WeightSource> trained_;
  std::set<std::string> names_;  ///< parameters of trained_
};

/// Returns where PEFT keeps each parameter that is trained.
std::vector<TensorPart> parts_of(std::span<const ParameterShape> parameters,
                                 const config::Architecture* architecture) {
  Catalog catalog;
  std::vector<TensorPart> parts;
  for (const ParameterShape& p : parameters) {
    catalog.parameters.push_back({p.name, p.shape});
    parts.push_back({.tensors = {fmt::format("{}{}", config::peft_prefix, p.name)},
                     .shape = p.shape,
                     .rows = elements(p.shape)});
  }
  for (const AdapterTensor& tensor : adapter_tensors(catalog, architecture)) {
    const SourcePart& first = tensor.parts.front();
    TensorPart& part = parts[static_cast<std::size_t>(first.parameter)];
    part = {.tensors = {tensor.name}, .shape = tensor.shape, .rows = first.count};
    if (tensor.parts.size() == 1 && first.columns == 1) continue;
    part.matrices = std::ssize(tensor.parts);
    part.columns = first.columns;
    part.rows = first.count / first.columns;
    part.first = first.first;
    part.row_stride = first.row_stride;
    part.column_stride = first.column_stride;
    part.matrix_stride = tensor.parts.size() > 1 ? tensor.parts[1].first - first.first : 0;
  }
  return parts;
}

}  // namespace

std::unique_ptr<WeightSource> with_peft(const fs::path& folder, std::span<const ParameterShape> parameters,
                                        const config::Architecture* architecture,
                                        std::unique_ptr<WeightSource> base) {
  auto files = open_safetensors_folder(folder, config::peft_weights_file);
  const std::vector<TensorPart> parts = parts_of(parameters, architecture);
  std::set<std::string> names, known;
  std::vector<std::string> wrong;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto found = files->shapes().find(parts[i].tensors.front());
    if (found == files->shapes().end()) {
      if (parameters[i].adapter) wrong.push_back(parts[i].tensors.front() + " is missing");
      continue;
    }
    known.insert(found->first);
    names.insert(parameters[i].name);
    if (found->second != parts[i].shape)
      wrong.push_back(fmt::format("{} has shape {} and not {}", found->first, to_string(found->second),
                                  to_string(parts[i].shape)));
  }
  for (const auto& [name, shape] : files->shapes())
    if (!known.contains(name)) wrong.push_back(name + " is of no layer that has adapters in this run");
  REQUIRE(wrong.empty(), "model.from: '{}' does not hold the adapters that its {} says: {}{}",
          folder.string(), config::peft_config_file,
          fmt::join(wrong.begin(), wrong.begin() + std::min<std::ptrdiff_t>(std::ssize(wrong), 5), ", "),
          wrong.size() > 5 ? ", ..." : "");
  const std::vector<NamedShape> named = named_shapes(parameters);
  return std::make_unique<PeftWeights>(with_parts(std::move(files), named, parts), std::move(base),
                                       std::move(names));
}

}  // namespace ztrain::checkpoint
