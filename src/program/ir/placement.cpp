#include "program/ir/placement.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace ztrain::program {
namespace {

Placement placement_of(char letter, std::string_view text) {
  switch (letter) {
    case 'R':
      return replicated;
    case 'I':
      return invariant;
    case 'P':
      return partial;
    default:
      ASSERT(letter >= '0' && letter <= '9', "'{}' in '{}' is no placement", letter, text);
      return split(letter - '0');
  }
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
  switch (p.kind) {
    case Placement::Kind::replicated:
      return "replicated";
    case Placement::Kind::invariant:
      return "invariant";
    case Placement::Kind::split:
      return fmt::format("split({})", p.dim);
    case Placement::Kind::partial:
      return "partial";
  }
  return "";
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
