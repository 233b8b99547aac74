#include "checkpoint/hf/export_plan.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "checkpoint/hf/adapters.hpp"
#include "checkpoint/hf/tensor_parts.hpp"
#include "config/adapters.hpp"
#include "config/hf/peft_config.hpp"

namespace ztrain::checkpoint {
namespace {

void add(ExportPlan& plan, const std::string& name, const Shape& shape, DType dtype,
         TensorSource source = {}) {
  plan.tensors.push_back({name, safetensors_dtype(dtype), dtype, shape, 0, elements(shape) * size_of(dtype)});
  plan.sources.push_back(std::move(source));
  plan.bytes += plan.tensors.back().bytes;
}

/// Returns the dtype in which files keep a parameter.
DType written_as(const std::string& parameter, const ExportOptions& options) {
  return parameter.ends_with(config::choice_bias) ? DType::f32 : options.dtype;
}

/// Adds the tensors of the model as files of the architecture have them, each where its first part stands.
void add_model(ExportPlan& plan, const Catalog& catalog, const Adapters& adapters,
               const ExportOptions& options) {
  const auto named = named_shapes(catalog.parameters);
  const auto forms = tensor_forms(named, options.architecture);
  std::map<std::string, std::size_t> places;
  for (std::size_t p = 0; p < forms.size(); ++p) {
    if (is_adapter(named[p].name)) continue;
    const TensorPart& part = forms[p].front();
    const auto found = adapters.of_weight.find(named[p].name);
    const auto added = found == adapters.of_weight.end() ? std::nullopt : std::optional(found->second);
    const bool stacked = part.matrices > 1 && part.tensors.size() == 1;
    for (std::int64_t m = 0; m < part.matrices; ++m) {
      const auto [at, is_new] = places.try_emplace(part.tensor_of(m), plan.tensors.size());
      if (is_new) add(plan, part.tensor_of(m), part.shape, written_as(named[p].name, options));
      TensorSource& source = plan.sources[at->second];
      if (!part.is_consecutive()) source.unit = stacked ? part.matrix_stride : elements(part.shape);
      source.parts.push_back({static_cast<std::int64_t>(p), added, m * part.matrix_elements(),
                              part.matrix_elements(), part.columns, part.first_of(m), part.row_stride,
                              part.column_stride});
    }
  }
  if (options.architecture == nullptr) return;
  for (const auto& [name, value] : written_buffers(named, *options.architecture))
    add(plan, name, {}, options.dtype, {.value = value});
}

/// Returns why PEFT's folder cannot hold a parameter that was trained itself, or "". PEFT keeps whole
/// modules, and finds these by name.
std::string why_not_whole(const Catalog& catalog, const ParameterEntry& trained, const TensorPart& part,
                          const Adapters& adapters) {
  const std::string module = config::module_of(trained.name);
  if (part.tensors.front() != trained.name || config::names_experts(trained.name))
    return fmt::format("Hugging Face's model keeps it in {}", part.tensors.front());
  if (adapters.of_weight.contains(module + std::string(config::weight_ending)))
    return "its layer has adapters too";
  for (const ParameterEntry& p : catalog.parameters)
    if (p.frozen && config::module_of(p.name) == module) return fmt::format("{} was not trained", p.name);
  if (trained.name == config::embedding_weight &&
      std::ranges::count(catalog.parameters, config::head_weight, &ParameterEntry::name) == 0)
    return "the head is tied to it";
  return "";
}

/// Adds the parameters of the model that were trained besides the adapters, as PEFT's modules_to_save.
void add_whole(ExportPlan& plan, const Catalog& catalog, const Adapters& adapters,
               const std::string& checkpoint, const ExportOptions& options) {
  const auto named = named_shapes(catalog.parameters);
  const auto forms = tensor_forms(named, options.architecture);
  for (std::size_t p = 0; p < forms.size(); ++p) {
    const ParameterEntry& trained = catalog.parameters[p];
    if (trained.frozen || is_adapter(trained.name)) continue;
    const std::string why = why_not_whole(catalog, trained, forms[p].front(), adapters);
    REQUIRE(why.empty(),
            "{}: {} was trained besides the adapters (model.trainable), and PEFT's form of it "
            "(modules_to_save) cannot hold it: {}; export the merged model instead",
            checkpoint, trained.name, why);
    TensorSource source;
    source.parts.push_back({.parameter = static_cast<std::int64_t>(p), .count = elements(trained.shape)});
    add(plan, fmt::format("{}{}", config::peft_prefix, trained.name), trained.shape, options.dtype,
        std::move(source));
  }
}

/// Requires that each adapter is of a module that Hugging Face's model has. PEFT finds modules by name.
/// Experts are in all of transformers' models in the form that adapter_tensors knows.
void require_own_modules(const Catalog& catalog, const Adapters& adapters, const std::string& checkpoint,
                         const ExportOptions& options) {
  const auto named = named_shapes(catalog.parameters);
  const auto forms = tensor_forms(named, options.architecture);
  for (std::size_t p = 0; p < forms.size(); ++p) {
    const TensorPart& part = forms[p].front();
    if (config::names_experts(named[p].name)) continue;
    REQUIRE(part.tensors.front() == named[p].name || !adapters.of_weight.contains(named[p].name),
            "{}: the adapter of {} cannot be exported alone: Hugging Face's model keeps that weight {} {}; "
            "export the merged model instead ({} without adapters alone)",
            checkpoint, named[p].name, part.is_transposed() ? "transposed, as" : "in", part.tensors.front(),
            options.keys.folder);
  }
}

void add_adapters(ExportPlan& plan, const Catalog& catalog, const ExportOptions& options) {
  std::map<std::string, std::size_t> places;
  for (AdapterTensor& tensor : adapter_tensors(catalog, options.architecture)) {
    const auto [at, is_new] = places.try_emplace(tensor.name, plan.tensors.size());
    if (is_new) add(plan, tensor.name, tensor.shape, options.dtype);
    TensorSource& source = plan.sources[at->second];
    const SourcePart& part = tensor.parts.front();
    if (part.row_stride != part.columns || part.column_stride != 1) source.unit = elements(tensor.shape);
    source.parts.insert(source.parts.end(), tensor.parts.begin(), tensor.parts.end());
  }
}

/// Fills one file after the other.
void share_out(ExportPlan& plan, std::int64_t max_bytes) {
  std::int64_t bytes = 0;
  for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
    if (plan.files.empty() || bytes + plan.tensors[t].bytes > max_bytes) {
      plan.files.push_back({"", t, 0});
      bytes = 0;
    }
    ++plan.files.back().count;
    bytes += plan.tensors[t].bytes;
  }
  const std::size_t n = plan.files.size();
  for (std::size_t f = 0; f < n; ++f)
    plan.files[f].name =
        n == 1 ? single_safetensors : fmt::format("model-{:05}-of-{:05}.safetensors", f + 1, n);
}

}  // namespace

ExportPlan plan_export(const Catalog& catalog, const std::string& checkpoint, const ExportOptions& options) {
  ExportPlan plan;
  const Adapters adapters = find_adapters(catalog, checkpoint);
  plan.rank = adapters.rank;
  if (options.content == ExportContent::model) {
    add_model(plan, catalog, adapters, options);
    share_out(plan, options.max_shard_bytes);
    return plan;
  }
  REQUIRE(plan.rank > 0, "{}: holds no adapters (lora.rank = 0): export the model instead", checkpoint);
  require_own_modules(catalog, adapters, checkpoint, options);
  add_adapters(plan, catalog, options);
  add_whole(plan, catalog, adapters, checkpoint, options);
  plan.files.push_back({"adapter_model.safetensors", 0, plan.tensors.size()});
  plan.adapter_config = adapter_config(catalog, adapters, options.adapters);
  return plan;
}

}  // namespace ztrain::checkpoint
