#pragma once
// The arrays of an optimizer step of any rule and types, as bytes, and their elements as float64.

#include <bit>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "base/shape.hpp"
#include "kernels/launch/exec.hpp"
#include "kernels/optimizer/optimizer_step.hpp"
#include "tests/support/kernel_arrays.hpp"

namespace ztrain::test {

using Bytes = Array<std::byte>;

template <class T>
void put_as(Bytes& bytes, std::int64_t i, T value) {
  settle();
  std::memcpy(bytes.data() + i * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}
template <class T>
T get_as(const Bytes& bytes, std::int64_t i) {
  T value;
  settle();
  std::memcpy(&value, bytes.data() + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

inline void put(Bytes& bytes, DType type, std::int64_t i, double value) {
  if (type == DType::f64) return put_as(bytes, i, value);
  if (type == DType::f32) return put_as(bytes, i, static_cast<float>(value));
  ASSERT_EQ(type, DType::bf16);
  put_as(bytes, i, bf16(static_cast<float>(value)));
}
inline double get(const Bytes& bytes, DType type, std::int64_t i) {
  if (type == DType::f64) return get_as<double>(bytes, i);
  if (type == DType::f32) return get_as<float>(bytes, i);
  if (type == DType::u8) return get_as<std::uint8_t>(bytes, i);
  return get_as<bf16>(bytes, i);
}

/// A rule with its settings and types.
struct OptimizerCase {
  std::string rule;
  optim::Settings settings;
  kernels::OptimizerTypes types;
  bool stochastic = false;

  std::vector<optim::StateInfo> states() const { return optim::find(rule).states(settings); }
  bool master() const { return types.master != types.parameter; }
  DType state_type(std::size_t s) const { return states()[s].dtype.value_or(types.moments); }
};

inline std::ostream& operator<<(std::ostream& out, const OptimizerCase& c) {
  out << c.rule << (c.settings.momentum > 0 ? " momentum" : "") << (c.settings.nesterov ? " nesterov" : "")
      << (c.stochastic ? " stochastic" : "") << " " << name_of(c.types.parameter) << " parameters";
  if (c.master()) out << ", " << name_of(c.types.master) << " master";
  return out << ", " << name_of(c.types.gradient) << " gradients, " << name_of(c.types.moments) << " moments";
}

/// Elements [begin, begin + count) of a job, whose values follow from their index.
struct OptimizerArraysOf {
  Bytes parameter, master, gradient;
  std::vector<Bytes> states;

  bool operator==(const OptimizerArraysOf&) const = default;

  static OptimizerArraysOf start(const OptimizerCase& c, std::int64_t begin, std::int64_t count) {
    OptimizerArraysOf a;
    const auto bytes = [&](std::int64_t n, DType type) {
      return Bytes(static_cast<std::size_t>(n * size_of(type)));
    };
    a.parameter = bytes(count, c.types.parameter);
    if (c.master()) a.master = bytes(count, c.types.master);
    a.gradient = bytes(count, c.types.gradient);
    for (std::size_t s = 0; s < c.states().size(); ++s)
      a.states.push_back(bytes(ceil_div(count, c.states()[s].granule), c.state_type(s)));
    for (std::int64_t i = 0; i < count; ++i) {
      const double value = normal(1, 7, static_cast<std::uint64_t>(begin + i));
      put(a.parameter, c.types.parameter, i, value);
      if (c.master()) put(a.master, c.types.master, i, value);
    }
    return a;
  }

  /// Gradients of one step.
  void draw_gradients(const OptimizerCase& c, std::int64_t begin, std::int64_t step) {
    const std::int64_t count = std::ssize(gradient) / size_of(c.types.gradient);
    for (std::int64_t i = 0; i < count; ++i)
      put(gradient, c.types.gradient, i,
          2 * normal(static_cast<std::uint64_t>(100 + step), 7, static_cast<std::uint64_t>(begin + i)));
  }

  kernels::OptimizerArrays view(const OptimizerCase& c) {
    kernels::OptimizerArrays v{parameter.data(), c.master() ? master.data() : nullptr, gradient.data(), {}};
    for (Bytes& state : states) v.states.push_back(state.data());
    return v;
  }

  void append(const OptimizerArraysOf& next) {
    const auto join = [](Bytes& to, const Bytes& from) { to.insert(to.end(), from.begin(), from.end()); };
    join(parameter, next.parameter);
    join(master, next.master);
    join(gradient, next.gradient);
    for (std::size_t s = 0; s < states.size(); ++s) join(states[s], next.states[s]);
  }
};

inline std::unique_ptr<kernels::OptimizerStep> make_step(const OptimizerCase& c, OptimizerArraysOf& arrays,
                                                         std::vector<kernels::OptimizerPiece> pieces,
                                                         std::uint64_t seed = 3) {
  return kernels::make_optimizer_step(c.rule, c.settings, c.types, arrays.view(c), std::move(pieces),
                                      {c.stochastic, seed});
}

/// Scalars of optimizer step `step`, counted from 0.
inline StepScalars scalars_of(const optim::Settings& o, std::int64_t step) {
  StepScalars s;
  s.learning_rate = 0.01;
  s.optimizer_step = static_cast<double>(step);
  s.bias_correction1 = 1 - std::pow(o.beta1, static_cast<double>(step + 1));
  s.bias_correction2 = 1 - std::pow(o.beta2, static_cast<double>(step + 1));
  s.gradient_multiplier = 0.125;
  s.valid_tokens = 4;
  return s;
}

/// Types of averages, whose values have no master. Parameters stand in place of gradients.
inline std::vector<kernels::OptimizerTypes> types_of_averages() {
  using enum DType;
  return {{f32, f32, f32, f32}, {f32, f32, DType::bf16, f32}, {f64, f64, f64, f64}};
}

/// Each rule with the legal types, and each variant of its settings.
inline std::vector<OptimizerCase> optimizer_cases() {
  using enum DType;
  const optim::Settings adam{0.9, 0.95, 1e-8, 0, false}, momentum{0.9, 0.95, 1e-8, 0.8, false},
      nesterov{0.9, 0.95, 1e-8, 0.8, true};
  const std::vector<kernels::OptimizerTypes> all = {{f32, f32, f32, f32},
                                                    {f32, f32, f32, DType::bf16},
                                                    {DType::bf16, f32, f32, f32},
                                                    {DType::bf16, f32, DType::bf16, DType::bf16},
                                                    {DType::bf16, f32, DType::bf16, f32},
                                                    {DType::bf16, f32, f32, DType::bf16},
                                                    {DType::bf16, DType::bf16, f32, f32},
                                                    {DType::bf16, DType::bf16, DType::bf16, DType::bf16},
                                                    {DType::bf16, DType::bf16, DType::bf16, f32},
                                                    {DType::bf16, DType::bf16, f32, DType::bf16},
                                                    {f64, f64, f64, f64}};
  std::vector<OptimizerCase> cases;
  for (const auto& types : all) {
    std::vector<std::string> rules = optim::names();
    rules.emplace_back("muon_move");
    for (const std::string& rule : rules) {
      cases.push_back({rule, adam, types});
      if (rule == "onebit_adam") cases.back().settings.freeze_step = 2;
      if (rule != "sgd" && rule != "muon") continue;
      cases.push_back({rule, momentum, types});
      cases.push_back({rule, nesterov, types});
    }
  }
  for (const auto& types : types_of_averages()) cases.push_back({"ema", momentum, types});
  const std::size_t nearest = cases.size();
  for (std::size_t i = 0; i < nearest; ++i)
    if (cases[i].types.master == DType::bf16) {
      cases.push_back(cases[i]);
      cases.back().stochastic = true;
    }
  return cases;
}

}  // namespace ztrain::test
