#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string>

#include "config/fields/fields.hpp"
#include "config/fields/value.hpp"
#include "config/validate/refusals.hpp"
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
    // Steps of a small learning rate are below what fp16 can hold next to the parameter.
    DTypeRule{DType::f16, "precision.master", &Precision::master, DType::f32},
    DTypeRule{DType::f16, "precision.moments", &Precision::moments, DType::bf16},
};

void check_doubles(const Deck& deck) {
  const Precision& p = deck.precision;
  const std::array all{p.parameters, p.gradients, p.reduce, p.master, p.moments};
  const auto doubles = std::count(all.begin(), all.end(), DType::f64);
  if (doubles != 0 && doubles != std::ssize(all))
    refuse(deck,
           "precision.parameters precision.gradients precision.reduce precision.master precision.moments "
           "precision.preset",
           {{"doubles", fmt::format("{} of them {}", doubles, doubles == 1 ? "is" : "are")}});
}

void check_rules(const Deck& deck) {
  for (const DTypeRule& rule : dtype_rules) {
    const DType type = deck.precision.*rule.member;
    if (deck.precision.parameters != rule.parameters || type == DType::f32 || type == rule.also) continue;
    const DType nearest = size_of(type) == size_of(rule.also) ? rule.also : DType::f32;
    const std::string other = rule.also == DType::f32 ? "" : fmt::format(" or {}", name_of(rule.also));
    refuse(deck, "precision.* precision.parameters",
           {{"at", blame(deck, {rule.key, "precision.parameters", "precision.preset"})},
            {"key", rule.key},
            {"type", name_of(type)},
            {"legal", std::string(name_of(DType::f32)) + other},
            {"nearest", name_of(nearest)}});
  }
}

/// Allows a key that other keys leave without effect only with its default.
void check_loss_scaling(const Deck& deck) {
  const LossScaling& l = deck.loss_scaling;
  if (deck.precision.parameters == DType::f16) {
    const double start = std::ldexp(1.0, static_cast<int>(l.initial_scale_power));
    if (l.scale <= 0 && l.min_scale > start)
      refuse(deck, "loss_scaling.min_scale loss_scaling.initial_scale_power", {{"legal", start}});
    return;
  }
  Deck defaults;
  for (const Field& field : fields()) {
    if (field.section() != "loss_scaling" || !is_explicit(deck, field.key)) continue;
    assign(field, field.standard, defaults, "default");
    if (render(field, deck) != render(field, defaults))
      refuse(deck, "loss_scaling.* precision.parameters",
             {{"at", source_of(deck, field.key)}, {"key", field.key}, {"value", render(field, deck)}});
  }
}

void check_moments(Deck& deck) {
  if (deck.optimizer.name != "adamw_8bit") return;
  if (is_explicit(deck, "precision.moments"))
    refuse(deck, "precision.moments optimizer.name", {{"source", source_of(deck, "optimizer.name")}});
  set_unused(deck, "precision.moments", "not used: the moments of adamw_8bit have 8 bits");
}

/// Gives muon Nesterov's momentum of 0.95 if the deck says nothing else.
void check_momentum(Deck& deck) {
  if (deck.optimizer.name != "muon") return;
  for (const auto& [key, value] : {std::pair("optimizer.momentum", "0.95"), {"optimizer.nesterov", "true"}}) {
    if (is_explicit(deck, key)) continue;
    assign(*find_field(key), value, deck, "optimizer.name");
    set_source(deck, key, "optimizer.name = \"muon\"");
  }
}

}  // namespace

void check_precision(Deck& deck) {
  check_momentum(deck);
  check_doubles(deck);
  check_rules(deck);
  check_loss_scaling(deck);
  check_moments(deck);
}

}  // namespace ztrain::config
