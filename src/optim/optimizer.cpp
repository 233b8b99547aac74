#include "optim/optimizer.hpp"

#include <fmt/ranges.h>

#include <tuple>

#include "base/error.hpp"
#include "optim/rules.hpp"

namespace ztrain::optim {
namespace {

template <class R>
constexpr std::string_view others_of() {
  if constexpr (requires { R::others; })
    return R::others;
  else
    return "";
}

template <class R>
constexpr bool sums_signs_of() {
  if constexpr (requires { R::sums_signs; })
    return R::sums_signs;
  else
    return false;
}

template <class... R>
std::vector<Info> infos(std::tuple<R...>*) {
  return {{R::name, R::doc, R::whole, R::states, others_of<R>(), sums_signs_of<R>()}...};
}

}  // namespace

const std::vector<Info>& table() {
  static const std::vector<Info> rows = infos(static_cast<Rules*>(nullptr));
  return rows;
}

std::vector<StateInfo> kept_states(const Info& rule, const Settings& settings, DType stepped, bool copies) {
  std::vector<StateInfo> states = rule.states(settings);
  if (rule.sums_signs && copies)
    states.push_back({.name = std::string(error_state), .dtype = DType::f32, .of_each_copy = true});
  if (settings.ema_decay > 0)
    states.push_back({std::string(average_state), stepped == DType::f64 ? DType::f64 : DType::f32});
  return states;
}

const Info& find(std::string_view name) {
  static const std::vector<Info> rows = infos(static_cast<StepRules*>(nullptr));
  for (const Info& info : rows)
    if (info.name == name) return info;
  fail("'{}' is not an optimizer; legal: {}", name, fmt::join(names(), ", "));
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const Info& info : table()) result.emplace_back(info.name);
  return result;
}

}  // namespace ztrain::optim
