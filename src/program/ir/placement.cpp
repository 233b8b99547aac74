#include "program/ir/placement.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace ztrain::program {
namespace {

Placement placement_of(char letter, std::string_view text) {
  if (letter == 'R') return replicated;
  if (letter == 'I') return invariant;
  if (letter == 'P') return partial;
  ASSERT(letter >= '0' && letter <= '9', "'{}' in '{}' is no placement", letter, text);
  return split(letter - '0');
}

Placing parse_placing(std::string_view text) {
  Placing placing;
  bool inputs = true;
  for (const char letter : text) {
    if (letter == '>')
      inputs = false;
    else
      (inputs ? placing.inputs : placing.outputs).push_back(placement_of(letter, text));
  }
  ASSERT(!inputs && !placing.outputs.empty(), "'{}' says nothing of outputs", text);
  return placing;
}

}  // namespace

std::string to_string(const Placement& p) {
  if (p.kind == Placement::Kind::split) return fmt::format("split({})", p.dim);
  return p == replicated ? "replicated" : p == invariant ? "invariant" : "partial";
}

std::vector<Placing> parse_placings(std::string_view text) {
  std::vector<Placing> placings;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    placings.push_back(parse_placing(text.substr(0, end)));
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return placings;
}

}  // namespace ztrain::program
