#include "config/fields/fields.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>

#include "config/architectures.hpp"
#include "config/fields/fields_rows.hpp"
#include "config/fields/model_keys.hpp"

namespace ztrain::config {
namespace {

template <class... Parts>
std::vector<Field> joined(const Parts&... parts) {
  std::vector<Field> all;
  (all.insert(all.end(), parts.begin(), parts.end()), ...);
  return all;
}

struct SectionRow {
  const char *name, *doc;
};
constexpr std::array section_rows{
    SectionRow{"run", "Length, seed and output of the run."},
    SectionRow{"data", "Token files."},
    SectionRow{"model", "The transformer."},
    SectionRow{"sparse_attention",
               "Attention to some blocks of keys only. All names but seed and layout are those of "
               "DeepSpeed's section. It works on CPU ranks only."},
    SectionRow{"experts", "Training of mixtures of experts."},
    SectionRow{"lora",
               "Low-rank adapters (Hu et al., 2021): the model's weights stay, small factors beside them are "
               "trained."},
    SectionRow{"loss", "The loss of tokens."},
    SectionRow{"preference",
               "A loss on pairs of answers, a chosen one and a rejected one. The names are those of TRL."},
    SectionRow{
        "distillation",
        "A loss against the likelihoods that a second model, the teacher, gives the words of the data."},
    SectionRow{"batch", "Batch sizes, in sequences."},
    SectionRow{"mesh",
               "Degrees of the mesh axes. The product of all but mesh.expert is the number of ranks."},
    SectionRow{"pipeline",
               "How the model's layers are shared over mesh.pipeline, and in which order its ranks work."},
    SectionRow{"context", "How sequences are shared over mesh.context."},
    SectionRow{"tensor", "How layers are shared over mesh.tensor."},
    SectionRow{"sharding", "What is sharded, and when it is gathered."},
    SectionRow{"precision", "Element types: fp32, bf16, fp16, or fp64 for all five."},
    SectionRow{"loss_scaling",
               "Keeping fp16 gradients in range; for precision.parameters = fp16 only. The names are those "
               "of DeepSpeed's fp16 section."},
    SectionRow{"recompute", "Trading computation for memory."},
    SectionRow{"offload",
               "Keeping states and activations in other memory than the device's. What is computed does not "
               "change by a bit."},
    SectionRow{"optimizer", "The optimizer, its groups of parameters and the clipping of gradients."},
    SectionRow{"schedule", "The learning rate over the run."},
    SectionRow{"checkpoint", "Saving and resuming."},
    SectionRow{"evaluation", "Loss on the validation data."},
    SectionRow{"metrics", "What is printed."},
    SectionRow{"profile", "Recording of what each rank does, and when."},
    SectionRow{"watchdog", "Noticing a job that hangs."},
    SectionRow{"cluster", "What cannot be asked of the machine, for planning, simulation and utilisation."},
    SectionRow{"device",
               "How devices are used. For CPU ranks only bf16_products, fp32_products and reduction have an "
               "effect."},
    SectionRow{"debug", "Finding mistakes of ztrain itself."},
};

std::string range_text(const Legal& legal) {
  const bool low = std::isfinite(legal.least), high = legal.most < most_count;
  if (legal.multiple > 1) return fmt::format(", a multiple of {} up to {:.0f}", legal.multiple, legal.most);
  if (low && high && legal.open_least) return fmt::format(" above {}, at most {}", legal.least, legal.most);
  if (low && high)
    return fmt::format(" from {} to {}{}", legal.least, legal.open_most ? "below " : "", legal.most);
  if (low)
    return legal.open_least ? fmt::format(" above {}", legal.least)
                            : fmt::format(", {} or more", legal.least);
  return "";
}

/// Returns a sentence that names the families that have a key of [model]; "": all have it.
std::string families_text(const Field& field) {
  std::vector<std::string_view> with, without;
  for (const Architecture& a : architectures())
    (find_key(a, field.key) != nullptr ? with : without).push_back(a.family);
  if (!shapes_model(field) || field.key == "model.family" || without.empty()) return "";
  const bool few = with.size() <= without.size();
  return fmt::format(" {}: {}.", few ? "Families" : "Families that have no such key",
                     fmt::join(few ? with : without, ", "));
}

std::vector<Field> with_families(std::vector<Field> table) {
  for (Field& field : table) field.doc += families_text(field);
  return table;
}

}  // namespace

const std::vector<Field>& fields() {
  using namespace rows;
  static const std::vector<Field> table = with_families(
      joined(run(), data(), model(), rotary(), attention(), mixture(), trained(), sparse_attention(),
             experts(), lora(), loss(), preference(), distillation(), batch_and_degrees(), pipeline(),
             context_and_tensor(), strategy(), gathering(), grouping(), precision(), loss_scaling(),
             recompute(), offload(), optimization(), checkpoint(), resume_and_export(), operation(),
             watchdog(), size_of_machine(), speed_of_machine(), device(), debug()));
  return table;
}

const Field* find_field(std::string_view key) {
  for (const auto& field : fields()) {
    if (field.key == key) return &field;
  }
  return nullptr;
}

std::vector<std::string> field_keys() {
  std::vector<std::string> keys;
  for (const auto& field : fields()) keys.push_back(field.key);
  return keys;
}

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  for (const auto& row : section_rows) names.emplace_back(row.name);
  return names;
}

std::string section_doc(std::string_view section) {
  for (const auto& row : section_rows) {
    if (section == row.name) return row.doc;
  }
  return "";
}

std::string type_name(const Field& field) {
  constexpr std::array names{"string",          "integer",         "number",      "boolean",       "dtype",
                             "list of strings", "list of numbers", "two numbers", "list of tables"};
  static_assert(names.size() == std::variant_size_v<Access>);
  return names[field.access.index()];
}

std::string legal_text(const Field& field) {
  const Legal& legal = field.legal;
  if (!legal.choices.empty()) {
    std::vector<std::string> words = legal.choices;
    for (const auto& [spelling, choice] : legal.aliases)
      words.push_back(fmt::format("{} (= {})", spelling, choice));
    const bool list = std::holds_alternative<std::vector<std::string>& (*)(Deck&)>(field.access);
    return fmt::format("{} {}{}", list ? "a list of" : "one of", fmt::join(words, ", "),
                       legal.or_from > 0          ? fmt::format(", or an integer, {} or more", legal.or_from)
                       : !legal.or_ending.empty() ? fmt::format(", or a file *{}", legal.or_ending)
                                                  : "");
  }
  if (legal.whole_from_one) return "an integer, 0 or more, or a share below 1";
  constexpr std::array things{
      "a string",          "an integer",  "a number",
      "true or false",     "a dtype",     "a list of strings",
      "a list of numbers", "two numbers", "a list of tables {match, lr_scale, weight_decay}"};
  static_assert(things.size() == std::variant_size_v<Access>);
  return fmt::format("{}{}{}", things[field.access.index()], range_text(legal),
                     legal.minus_one ? ", or -1" : "");
}

}  // namespace ztrain::config
