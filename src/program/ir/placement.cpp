#include "program/ir/placement.hpp"

#include <fmt/format.h>

namespace ztrain::program {

std::string to_string(const Placement& p) {
  switch (p.kind) {
    case Placement::Kind::split:
      return fmt::format("split({})", p.dim);
    case Placement::Kind::replicated:
      return "replicated";
    case Placement::Kind::invariant:
      return "invariant";
    case Placement::Kind::partial:
      return "partial";
    case Placement::Kind::routed:
      return "routed";
    case Placement::Kind::to_members:
      return "for other ranks";
    case Placement::Kind::from_members:
      return "from other ranks";
    case Placement::Kind::nothing:
      return "nothing";
  }
  return "";
}

}  // namespace ztrain::program
