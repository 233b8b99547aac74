#include "checkpoint/hf/adapters.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/error.hpp"
#include "base/json.hpp"
#include "checkpoint/hf/weight_source.hpp"
#include "config/adapters.hpp"
#include "config/hf/peft_config.hpp"
#include "config/hf/reward_model.hpp"

namespace ztrain::checkpoint {
namespace {

using config::lora_a_ending, config::lora_b_ending, config::weight_ending;

using config::peft_prefix;

std::string module_of(const std::string& parameter, std::string_view ending) {
  return parameter.substr(0, parameter.size() - ending.size());
}

std::string joined(std::string_view name, std::string_view ending) {
  return fmt::format("{}{}", name, ending);
}

/// Returns the shape with other rows (the dim before the last) and columns.
Shape resized(Shape shape, std::int64_t rows, std::int64_t columns) {
  ASSERT(shape.size() >= 2, "a matrix has {} dims", shape.size());
  *(shape.end() - 2) = rows;
  shape.back() = columns;
  return shape;
}

/// Names of modules as adapter_config.json lists them.
struct Targets {
  std::set<std::string> modules, parameters;  ///< linear layers, and experts
};

/// Returns last parts of the names of linear layers if these mean the same modules, else whole names, and
/// whole names of experts. PEFT takes either, and compares the ends of names.
Targets targets_of(const Catalog& catalog, const Adapters& adapters) {
  Targets whole;
  std::set<std::string> parts;
  for (const auto& [weight, pair] : adapters.of_weight) {
    const std::string module = config::adapted_module(module_of(weight, weight_ending));
    if (config::names_experts(module)) {
      whole.parameters.insert(module);
      continue;
    }
    whole.modules.insert(module);
    parts.insert(config::last_part(module));
  }
  for (const ParameterEntry& p : catalog.parameters) {
    if (is_adapter(p.name) || !p.name.ends_with(weight_ending)) continue;
    const std::string module = module_of(p.name, weight_ending);
    if (parts.contains(config::last_part(module)) && !whole.modules.contains(module)) return whole;
  }
  whole.modules = parts;
  return whole;
}

/// Returns the module in which PEFT has the factors of a module of experts. It wraps their container once for
/// each parameter that has adapters, first for gate_up_proj and then for down_proj.
std::string wrapper_of(const std::string& module, bool both_adapted) {
  const std::string last = config::last_part(module), container = module_of(module, "." + last);
  return both_adapted && last == "gate_up_proj" ? container + ".base_layer" : container;
}

/// Outputs of a layer of experts in the tensor that transformers has: output r is row first + r * step of
/// `of`.
struct OutputRows {
  std::int64_t first = 0, step = 1, of = 0;
};

OutputRows output_rows(const std::string& layer, std::int64_t outputs,
                       const config::Architecture* architecture) {
  if (config::adapted_module(layer) == layer) return {.of = outputs};
  const bool is_up = config::last_part(layer) == "up_proj",
             interleaved = architecture != nullptr &&
                           std::ranges::find(architecture->files, config::PartOrder::interleaved,
                                             &config::FileTensor::order) != architecture->files.end();
  if (interleaved) return {.first = is_up ? 1 : 0, .step = 2, .of = 2 * outputs};
  return {.first = is_up ? outputs : 0, .of = 2 * outputs};
}

/// Returns where a factor of experts goes; p is its place in the catalog.
AdapterTensor expert_tensor(const ParameterEntry& factor, std::int64_t p, bool both_adapted,
                            const config::Architecture* architecture) {
  const bool is_a = factor.name.ends_with(lora_a_ending);
  const std::string_view ending = is_a ? lora_a_ending : lora_b_ending;
  const std::string layer = module_of(factor.name, ending),
                    wrapper = wrapper_of(config::adapted_module(layer), both_adapted);
  const std::int64_t experts = factor.shape[0], rows = factor.shape[1], columns = factor.shape[2];
  AdapterTensor tensor{fmt::format("{}{}{}", peft_prefix, wrapper, ending), {}, {}};
  if (is_a) {
    tensor.shape = {experts * rows, columns};
    tensor.parts.push_back({.parameter = p, .count = elements(tensor.shape)});
    return tensor;
  }
  const OutputRows outputs = output_rows(layer, rows, architecture);
  const std::int64_t width = columns * experts;
  tensor.shape = {outputs.of, width};
  for (std::int64_t e = 0; e < experts; ++e)
    tensor.parts.push_back({.parameter = p,
                            .from = e * rows * columns,
                            .count = rows * columns,
                            .columns = columns,
                            .first = outputs.first * width + e,
                            .row_stride = outputs.step * width,
                            .column_stride = experts});
  return tensor;
}

}  // namespace

bool is_adapter(const std::string& parameter) {
  return parameter.ends_with(lora_a_ending) || parameter.ends_with(lora_b_ending) ||
         parameter.ends_with(config::magnitude_ending);
}

Adapters find_adapters(const Catalog& catalog, const std::string& checkpoint) {
  std::map<std::string, std::int64_t> number;
  for (const ParameterEntry& p : catalog.parameters)
    number.emplace(p.name, static_cast<std::int64_t>(number.size()));
  const auto shape = [&](std::int64_t p) -> const Shape& {
    return catalog.parameters[static_cast<std::size_t>(p)].shape;
  };
  Adapters adapters;
  std::set<std::int64_t> paired;  // places of A and of magnitudes
  const auto require_whole = [&](bool whole, const std::string& factor, std::string_view layer) {
    REQUIRE(whole, "{}: {} lacks its partner, or the weight that it belongs to ({}.weight)", checkpoint,
            factor, layer);
  };
  for (const ParameterEntry& p : catalog.parameters) {
    if (!p.name.ends_with(lora_b_ending)) continue;
    const std::string layer = module_of(p.name, lora_b_ending);
    const auto w = number.find(joined(layer, weight_ending)),
               a = number.find(joined(config::adapted_module(layer), lora_a_ending)), b = number.find(p.name);
    require_whole(w != number.end() && a != number.end(), p.name, layer);
    const Shape &of_w = shape(w->second), &of_a = shape(a->second), &of_b = shape(b->second);
    REQUIRE((of_w.size() == 2 || of_w.size() == 3) && of_b.size() == of_w.size() &&
                of_a == resized(of_w, of_b.back(), of_w.back()) &&
                of_b == resized(of_w, *(of_w.end() - 2), of_b.back()),
            "{}: the adapter of {} has factors {} and {} beside a weight {}", checkpoint, layer,
            to_string(of_a), to_string(of_b), to_string(of_w));
    REQUIRE(adapters.rank == 0 || adapters.rank == of_b.back(),
            "{}: the adapter of {} has rank {}, others have {}", checkpoint, layer, of_b.back(),
            adapters.rank);
    adapters.rank = of_b.back();
    const auto m = number.find(joined(layer, config::magnitude_ending));
    const bool has_magnitudes = m != number.end();
    REQUIRE(!has_magnitudes || (of_w.size() == 2 && shape(m->second) == Shape{of_w[0]}),
            "{}: the adapter of {} has magnitudes {} beside a weight {}", checkpoint, layer,
            to_string(shape(m->second)), to_string(of_w));
    adapters.of_weight[w->first] = {w->second, a->second, b->second, has_magnitudes ? m->second : -1};
    adapters.dora = adapters.dora || has_magnitudes;
    paired.insert(a->second);
    if (has_magnitudes) paired.insert(m->second);
  }
  for (const auto& [name, p] : number)
    for (const std::string_view ending : {lora_a_ending, config::magnitude_ending})
      if (name.ends_with(ending)) require_whole(paired.contains(p), name, module_of(name, ending));
  for (const auto& [weight, pair] : adapters.of_weight)
    REQUIRE(adapters.dora == (pair.magnitude >= 0),
            "{}: the adapter of {} has no magnitudes, and others have", checkpoint, weight);
  return adapters;
}

std::vector<AdapterTensor> adapter_tensors(const Catalog& catalog, const config::Architecture* architecture) {
  std::set<std::string> down;  // modules of experts whose down_proj has adapters
  for (const ParameterEntry& p : catalog.parameters)
    if (p.shape.size() == 3 && p.name.ends_with(joined(".down_proj", lora_a_ending)))
      down.insert(module_of(p.name, joined(".down_proj", lora_a_ending)));
  std::vector<AdapterTensor> tensors;
  for (std::int64_t p = 0; p < std::ssize(catalog.parameters); ++p) {
    const ParameterEntry& factor = catalog.parameters[static_cast<std::size_t>(p)];
    if (!is_adapter(factor.name)) continue;
    if (factor.shape.size() == 3) {
      const std::string container = factor.name.substr(0, factor.name.rfind(".experts.")) + ".experts";
      tensors.push_back(expert_tensor(factor, p, down.contains(container), architecture));
    } else {
      tensors.push_back({joined(peft_prefix, factor.name),
                         factor.shape,
                         {{.parameter = p, .count = elements(factor.shape)}}});
    }
  }
  return tensors;
}

std::string adapter_config(const Catalog& catalog, const Adapters& adapters, const AdapterFacts& facts) {
  using nlohmann::json;
  const Targets targets = targets_of(catalog, adapters);
  std::set<std::string> whole;  // modules of the model that were trained themselves
  for (const ParameterEntry& p : catalog.parameters)
    if (!p.frozen && !is_adapter(p.name)) whole.insert(config::module_of(p.name));
  const bool scores = std::ranges::count(catalog.parameters, config::score_weight, &ParameterEntry::name) > 0;
  json config{{"peft_type", "LORA"},
              {"task_type", scores ? "SEQ_CLS" : "CAUSAL_LM"},
              {"base_model_name_or_path", facts.base.empty() ? json(nullptr) : json(facts.base)},
              {"r", adapters.rank},
              {"lora_alpha", facts.alpha},
              {"lora_dropout", facts.dropout},
              {"target_modules", targets.modules},
              {"bias", "none"},
              {"fan_in_fan_out", false},
              {"init_lora_weights", true},
              {"modules_to_save", whole.empty() ? json(nullptr) : json(whole)},
              {"use_rslora", facts.rslora},
              {"use_dora", adapters.dora},
              {"inference_mode", true}};
  if (!targets.parameters.empty()) config["target_parameters"] = targets.parameters;
  return json_text(config, 2) + "\n";
}

std::vector<float> Merger::values_of(std::int64_t parameter, std::int64_t begin, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::int64_t at = 0; at < count; at += block_elements)
    source_.read(parameter, begin + at, std::min(block_elements, count - at),
                 reinterpret_cast<std::byte*>(values.data() + at), DType::f32);
  return values;
}

std::vector<float> Merger::matrix_of(std::int64_t parameter, std::int64_t matrix) {
  const Shape& shape = shape_of(parameter);
  const std::int64_t count = shape.back() * *(shape.end() - 2);
  return values_of(parameter, matrix * count, count);
}

/// Sets the first elements of row_ to elements [first, first + count) of a row of B A.
void Merger::add_row(std::int64_t rank, std::int64_t row, std::int64_t first, std::int64_t count) {
  const std::int64_t columns = std::ssize(a_) / rank;
  row_.resize(static_cast<std::size_t>(columns));
  std::fill_n(row_.begin(), count, 0.0);
  double* const sum = row_.data();
  for (std::int64_t q = 0; q < rank; ++q) {
    const double b = b_[static_cast<std::size_t>(row * rank + q)];
    const float* const a = a_.data() + q * columns + first;
    for (std::int64_t j = 0; j < count; ++j) sum[j] += b * static_cast<double>(a[j]);
  }
}

/// Returns the magnitude of each row of the weight divided by its norm. A row of zeros stays one.
std::vector<double> Merger::gains_of(const AdapterPair& pair) {
  const std::int64_t rows = shape_of(pair.b)[0], rank = shape_of(pair.b)[1], columns = shape_of(pair.a)[1];
  const std::vector<float> magnitudes = values_of(pair.magnitude, 0, rows);
  std::vector<double> gains(magnitudes.begin(), magnitudes.end());
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::vector<float> weight = values_of(pair.weight, row * columns, columns);
    add_row(rank, row, 0, columns);
    double squares = 0;
    for (std::int64_t j = 0; j < columns; ++j) {
      const double value = static_cast<double>(weight[static_cast<std::size_t>(j)]) +
                           scale_ * row_[static_cast<std::size_t>(j)];
      squares += value * value;
    }
    gains[static_cast<std::size_t>(row)] *= squares > 0 ? 1 / std::sqrt(squares) : 0;
  }
  return gains;
}

void Merger::load(const AdapterPair& pair, std::int64_t matrix) {
  const Loaded factors{pair.a, pair.b, matrix};
  if (loaded_ == factors) return;
  a_ = matrix_of(pair.a, matrix);
  b_ = matrix_of(pair.b, matrix);
  gains_ = pair.magnitude < 0 ? std::vector<double>() : gains_of(pair);
  loaded_ = factors;
}

void Merger::add(const AdapterPair& pair, float* weight, std::int64_t begin, std::int64_t count) {
  const Shape &of_a = shape_of(pair.a), &of_b = shape_of(pair.b);
  const std::int64_t rank = of_b.back(), columns = of_a.back(), rows = *(of_b.end() - 2);
  const std::int64_t matrix = begin / (rows * columns);
  load(pair, matrix);
  begin -= matrix * rows * columns;
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t row = (begin + done) / columns, first = (begin + done) % columns;
    const std::int64_t n = std::min(columns - first, count - done);
    add_row(rank, row, first, n);
    const double gain = gains_.empty() ? 1 : gains_[static_cast<std::size_t>(row)];
    const double* const sum = row_.data();
    for (std::int64_t j = 0; j < n; ++j)
      weight[done + j] = static_cast<float>(gain * (static_cast<double>(weight[done + j]) + scale_ * sum[j]));
    done += n;
  }
}

}  // namespace ztrain::checkpoint
