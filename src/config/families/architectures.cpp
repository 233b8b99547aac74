#include "config/architectures.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"
#include "config/families/families.hpp"

namespace ztrain::config {
namespace {

using Maker = std::vector<Architecture> (*)();
constexpr Maker makers[] = {families::llama,   families::mistral, families::qwen,      families::gemma,
                            families::phi,     families::olmo,    families::smollm,    families::glm,
                            families::granite, families::apertus, families::starcoder, families::gpt2,
                            families::gpt_oss, families::deepseek};

/// Adds the rows that the architecture does not replace.
void add(std::vector<ModelKey>& keys, const std::vector<ModelKey>& more) {
  const auto own = static_cast<std::ptrdiff_t>(keys.size());
  for (const ModelKey& row : more)
    if (std::none_of(keys.begin(), keys.begin() + own,
                     [&](const ModelKey& k) { return std::string_view(k.key) == row.key; }))
      keys.push_back(row);
}

std::vector<Architecture> all() {
  std::vector<Architecture> table;
  for (const Maker maker : makers)
    for (Architecture& a : maker()) {
      if (!a.style.learned_positions) add(a.keys, families::rotary_keys());
      add(a.keys, families::common_keys());
      table.push_back(std::move(a));
    }
  return table;
}

}  // namespace

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> table = all();
  return table;
}

const Architecture& find_architecture(std::string_view family) {
  std::vector<std::string_view> known;
  for (const Architecture& a : architectures()) {
    if (a.family == family) return a;
    known.push_back(a.family);
  }
  fail("'{}' is not a model family; known: {}", family, fmt::join(known, ", "));
}

std::string hf_classes() {
  std::vector<std::string_view> names;
  for (const Architecture& a : architectures()) names.push_back(a.hf_class);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string upcycled_families() {
  std::vector<std::string> pairs;
  for (const Architecture& a : architectures())
    if (!a.dense.empty()) pairs.push_back(fmt::format("{}: {}", a.family, a.dense));
  return fmt::format("{}", fmt::join(pairs, ", "));
}

}  // namespace ztrain::config
