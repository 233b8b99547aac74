#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "config/fields/fields.hpp"
#include "config/text/value.hpp"
#include "config/validate/validate.hpp"
#include "config/validate/validate_rules.hpp"

namespace ztrain::config {
namespace {

/// With parameters of this type, a key may be fp32 or `also`.
struct DTypeRule {
  DType parameters;
  const char* key;
  DType Precision::*member;
  DType also;
};
constexpr std::array dtype_rules{
    DTypeRule{DType::f32, "precision.gradients", &Precision::gradients, DType::f32},
    DTypeRule{DType::f32, "precision.reduce", &Precision::reduce, DType::bf16},
    DTypeRule{DType::f32, "precision.master", &Precision::master, DType::f32},
    DTypeRule{DType::f32, "precision.moments", &Precision::moments, DType::bf16},
    DTypeRule{DType::bf16, "precision.gradients", &Precision::gradients, DType::bf16},
    DTypeRule{DType::bf16, "precision.reduce", &Precision::reduce, DType::bf16},
    DTypeRule{DType::bf16, "precision.master", &Precision::master, DType::bf16},
    DTypeRule{DType::bf16, "precision.moments", &Precision::moments, DType::bf16},
    DTypeRule{DType::f16, "precision.gradients", &Precision::gradients, DType::f16},
    DTypeRule{DType::f16, "precision.reduce", &Precision::reduce, DType::f16},
    // The steps of a small learning rate are below what fp16 can hold next to the parameter.
    DTypeRule{DType::f16, "precision.master", &Precision::master, DType::f32},
    DTypeRule{DType::f16, "precision.moments", &Precision::moments, DType::bf16},
};

void check_doubles(const Deck& deck) {
  const Precision& p = deck.precision;
  const std::array all{p.parameters, p.gradients, p.reduce, p.master, p.moments};
  const auto doubles = std::count(all.begin(), all.end(), DType::f64);
  REQUIRE(doubles == 0 || doubles == static_cast<std::ptrdiff_t>(all.size()),
          "{}: fp64 is legal for all five dtypes of [precision] together only; {} of them {} fp64: write "
          "precision.preset = \"fp64\" alone",
          blame(deck, {"precision.parameters", "precision.gradients", "precision.reduce", "precision.master",
                       "precision.moments", "precision.preset"}),
          doubles, doubles == 1 ? "is" : "are");
}

void check_rules(const Deck& deck) {
  for (const DTypeRule& rule : dtype_rules) {
    const DType type = deck.precision.*rule.member;
    if (deck.precision.parameters != rule.parameters || type == DType::f32 || type == rule.also) continue;
    const DType nearest = size_of(type) == size_of(rule.also) ? rule.also : DType::f32;
    fail("{}: {} = \"{}\" does not go with precision.parameters = \"{}\": expected {}{}; nearest legal: {}",
         blame(deck, {rule.key, "precision.parameters", "precision.preset"}), rule.key, name_of(type),
         name_of(rule.parameters), name_of(DType::f32),
         rule.also == DType::f32 ? "" : fmt::format(" or {}", name_of(rule.also)), name_of(nearest));
  }
}

void check_rounding(const Deck& deck) {
  const Precision& p = deck.precision;
  REQUIRE(p.rounding != "stochastic" || p.master == DType::bf16,
          "{}: precision.rounding = \"stochastic\" needs precision.master = \"bf16\", but that is \"{}\"; "
          "nearest legal: auto",
          blame(deck, {"precision.rounding", "precision.master", "precision.preset"}), name_of(p.master));
}

/// The loss scale of fp16 is found by steps that are not finite; where units are stepped during backward,
/// there is no state before the step any more.
void check_non_finite(const Deck& deck) {
  REQUIRE(deck.watchdog.non_finite != "stop" || !deck.optimizer.during_backward,
          "{}: watchdog.non_finite = \"stop\" saves the state before the step, which "
          "optimizer.during_backward = true does not keep "
          "(such a step ends the run there anyway, unsaved); nearest legal: skip",
          blame(deck, {"watchdog.non_finite", "optimizer.during_backward"}));
  REQUIRE(deck.watchdog.non_finite != "stop" || deck.precision.parameters != DType::f16,
          "{}: watchdog.non_finite = \"stop\" does not go with precision.parameters = \"fp16\", whose loss "
          "scale is found by steps that are not finite; nearest legal: skip",
          blame(deck, {"watchdog.non_finite", "precision.parameters", "precision.preset"}));
}

/// A key that the other keys leave without effect may be given, but only as it is by default.
void check_loss_scaling(const Deck& deck) {
  const LossScaling& l = deck.loss_scaling;
  if (deck.precision.parameters == DType::f16) {
    const double start = std::ldexp(1.0, static_cast<int>(l.initial_scale_power));
    REQUIRE(l.scale > 0 || l.min_scale <= start,
            "{}: loss_scaling.min_scale ({}) is above the scale to begin with, 2 to the power of "
            "loss_scaling.initial_scale_power ({}); nearest legal: {}",
            blame(deck, {"loss_scaling.min_scale", "loss_scaling.initial_scale_power"}), l.min_scale,
            l.initial_scale_power, start);
    return;
  }
  Deck defaults;
  for (const Field& field : fields()) {
    if (field.section() != "loss_scaling" || !is_explicit(deck, field.key)) continue;
    assign(field, field.standard, defaults, "default");
    REQUIRE(render(field, deck) == render(field, defaults),
            "{}: {} = {} is for fp16 parameters only, and precision.parameters = \"{}\"; leave it out, or "
            "write precision.preset = \"deepspeed-fp16\"",
            source_of(deck, field.key), field.key, render(field, deck), name_of(deck.precision.parameters));
  }
}

void check_fp8(const Deck& deck) {
  const Precision& p = deck.precision;
  if (p.fp8 == "none") return;
  REQUIRE(p.parameters == DType::bf16,
          "{}: precision.fp8 = \"{}\" needs precision.parameters = \"bf16\", but that is \"{}\"; nearest "
          "legal: none",
          blame(deck, {"precision.fp8", "precision.parameters", "precision.preset"}), p.fp8,
          name_of(p.parameters));
}

void check_moments(Deck& deck) {
  if (deck.optimizer.name != "adamw_8bit") return;
  REQUIRE(!is_explicit(deck, "precision.moments"),
          "{}: precision.moments = \"{}\" does not go with optimizer.name = \"adamw_8bit\" ({}), whose "
          "moments have 8 bits; leave it out",
          source_of(deck, "precision.moments"), name_of(deck.precision.moments),
          source_of(deck, "optimizer.name"));
  set_unused(deck, "precision.moments", "not used: the moments of adamw_8bit have 8 bits");
}

}  // namespace

void check_precision(Deck& deck) {
  check_doubles(deck);
  check_rules(deck);
  check_rounding(deck);
  check_non_finite(deck);
  check_loss_scaling(deck);
  check_fp8(deck);
  check_moments(deck);
}

}  // namespace ztrain::config
