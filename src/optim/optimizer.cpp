#include "optim/optimizer.hpp"

#include <fmt/ranges.h>

#include <tuple>

#include "base/error.hpp"
#include "optim/rules.hpp"

namespace ztrain::optim {
namespace {

template <class... R>
std::vector<Info> infos(std::tuple<R...>*) {
  return {{R::name, R::doc, R::whole, R::states}...};
}

}  // namespace

const std::vector<Info>& table() {
  static const std::vector<Info> rows = infos(static_cast<Rules*>(nullptr));
  return rows;
}

const Info& find(std::string_view name) {
  for (const Info& info : table())
    if (info.name == name) return info;
  fail("'{}' is not an optimizer; legal: {}", name, fmt::join(names(), ", "));
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const Info& info : table()) result.emplace_back(info.name);
  return result;
}

}  // namespace ztrain::optim
