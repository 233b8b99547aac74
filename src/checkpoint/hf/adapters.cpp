#include "checkpoint/hf/adapters.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/error.hpp"
#include "base/json.hpp"

namespace ztrain::checkpoint {
namespace {

constexpr std::string_view a_ending = ".lora_A.weight", b_ending = ".lora_B.weight", w_ending = ".weight";

std::string module_of(const std::string& parameter, std::string_view ending) {
  return parameter.substr(0, parameter.size() - ending.size());
}

/// Returns the last part of a module's name: "self_attn.q_proj" -> "q_proj".
std::string last_part(const std::string& module) {
  return module.substr(module.rfind('.') + 1);
}

/// Returns last parts of names if these mean the same modules, else whole names. PEFT takes either, and
/// compares the ends of names.
std::set<std::string> target_modules(const Catalog& catalog, const Adapters& adapters) {
  std::set<std::string> whole, parts;
  for (const auto& [weight, pair] : adapters.of_weight) {
    whole.insert(module_of(weight, w_ending));
    parts.insert(last_part(module_of(weight, w_ending)));
  }
  for (const ParameterEntry& p : catalog.parameters) {
    if (is_adapter(p.name) || !p.name.ends_with(w_ending)) continue;
    const std::string module = module_of(p.name, w_ending);
    if (parts.contains(last_part(module)) && !whole.contains(module)) return whole;
  }
  return parts;
}

}  // namespace

bool is_adapter(const std::string& parameter) {
  return parameter.ends_with(a_ending) || parameter.ends_with(b_ending);
}

Adapters find_adapters(const Catalog& catalog, const std::string& checkpoint) {
  std::map<std::string, std::int64_t> number;
  for (const ParameterEntry& p : catalog.parameters)
    number.emplace(p.name, static_cast<std::int64_t>(number.size()));
  const auto shape = [&](std::int64_t p) -> const Shape& {
    return catalog.parameters[static_cast<std::size_t>(p)].shape;
  };
  Adapters adapters;
  for (const ParameterEntry& p : catalog.parameters) {
    if (!is_adapter(p.name)) continue;
    const std::string module = module_of(p.name, p.name.ends_with(a_ending) ? a_ending : b_ending);
    const auto find = [&](std::string_view ending) {
      return number.find(fmt::format("{}{}", module, ending));
    };
    const auto w = find(w_ending), a = find(a_ending), b = find(b_ending);
    REQUIRE(w != number.end() && a != number.end() && b != number.end(),
            "{}: {} lacks its partner, or the weight that it belongs to ({}.weight)", checkpoint, p.name,
            module);
    const Shape &of_w = shape(w->second), &of_a = shape(a->second), &of_b = shape(b->second);
    REQUIRE(of_w.size() == 2 && of_a.size() == 2 && of_b.size() == 2 && of_a[1] == of_w[1] &&
                of_b[0] == of_w[0] && of_a[0] == of_b[1],
            "{}: the adapter of {} has factors {} and {} beside a weight {}", checkpoint, module,
            to_string(of_a), to_string(of_b), to_string(of_w));
    REQUIRE(adapters.rank == 0 || adapters.rank == of_a[0],
            "{}: the adapter of {} has rank {}, others have {}", checkpoint, module, of_a[0], adapters.rank);
    adapters.rank = of_a[0];
    adapters.of_weight[w->first] = {a->second, b->second};
  }
  return adapters;
}

std::string adapter_config(const Catalog& catalog, const Adapters& adapters, const AdapterFacts& facts) {
  using nlohmann::json;
  const json config{{"peft_type", "LORA"},
                    {"task_type", "CAUSAL_LM"},
                    {"base_model_name_or_path", facts.base.empty() ? json(nullptr) : json(facts.base)},
                    {"r", adapters.rank},
                    {"lora_alpha", facts.alpha},
                    {"lora_dropout", facts.dropout},
                    {"target_modules", target_modules(catalog, adapters)},
                    {"bias", "none"},
                    {"fan_in_fan_out", false},
                    {"init_lora_weights", true},
                    {"modules_to_save", nullptr},
                    {"use_rslora", false},
                    {"use_dora", false},
                    {"inference_mode", true}};
  return json_text(config, 2) + "\n";
}

std::vector<float> Merger::whole(std::int64_t parameter) {
  const ParameterEntry& entry = reader_.catalog().parameters[static_cast<std::size_t>(parameter)];
  const std::int64_t count = elements(entry.shape);
  std::vector<float> values(static_cast<std::size_t>(count));
  std::int64_t found = 0;
  for (const PieceRow& piece : reader_.pieces(state_, parameter))
    found += reader_.read(piece, {{}, 0, 0, count}, reinterpret_cast<std::byte*>(values.data()), DType::f32);
  REQUIRE(found == count, "the checkpoint holds {} of {} elements of {}", found, count, entry.name);
  return values;
}

void Merger::load(const AdapterPair& pair) {
  if (loaded_ == pair.a) return;
  const Shape& shape = reader_.catalog().parameters[static_cast<std::size_t>(pair.a)].shape;
  rank_ = shape[0];
  columns_ = shape[1];
  a_ = whole(pair.a);
  b_ = whole(pair.b);
  row_.resize(static_cast<std::size_t>(columns_));
  loaded_ = pair.a;
}

void Merger::add(const AdapterPair& pair, float* weight, std::int64_t begin, std::int64_t count) {
  load(pair);
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t row = (begin + done) / columns_, first = (begin + done) % columns_;
    const std::int64_t n = std::min(columns_ - first, count - done);
    std::fill_n(row_.begin(), n, 0.0);
    double* const sum = row_.data();
    for (std::int64_t q = 0; q < rank_; ++q) {
      const double b = b_[static_cast<std::size_t>(row * rank_ + q)];
      const float* const a = a_.data() + q * columns_ + first;
      for (std::int64_t j = 0; j < n; ++j) sum[j] += b * static_cast<double>(a[j]);
    }
    for (std::int64_t j = 0; j < n; ++j)
      weight[done + j] = static_cast<float>(static_cast<double>(weight[done + j]) + scale_ * sum[j]);
    done += n;
  }
}

}  // namespace ztrain::checkpoint
