#include "program/ir/placement.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "program/ir/op_types.hpp"

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

/// A norm of whole rows needs them whole; one of heads does not.
bool mixes_columns(const model::Node& node, const Placing& placing) {
  return node.op == "rmsnorm" && placing.inputs[0] == split(1) && !node.attributes.has("of_heads");
}

/// Attention to keys that are a part of their sequence needs the others too.
bool lacks_keys(const model::Node& node, const Placing& placing, AxisSet axes) {
  return node.op == "attention" && placing.inputs[1] == split(0) &&
         (axes.bits() & ~sequence_axes.bits()) != 0;
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

std::vector<Placing> placings_of(const model::Node& node, AxisSet axes) {
  std::vector<Placing> ways;
  for (Placing& placing : parse_placings(op_type(node.op).placings)) {
    ASSERT(node.inputs.size() <= placing.inputs.size() && node.outputs.size() <= placing.outputs.size(),
           "{} has {} inputs and {} outputs, its row of the op table tells of {} and {}", node.op,
           node.inputs.size(), node.outputs.size(), placing.inputs.size(), placing.outputs.size());
    placing.inputs.resize(node.inputs.size());
    placing.outputs.resize(node.outputs.size());
    if (!mixes_columns(node, placing) && !lacks_keys(node, placing, axes)) ways.push_back(std::move(placing));
  }
  return ways;
}

}  // namespace ztrain::program
