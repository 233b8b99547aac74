#include "bench/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/text.hpp"
#include "config/text/print.hpp"
#include "config/validate/validate.hpp"
#include "plan/setup.hpp"

namespace ztrain::bench {
namespace {

using nlohmann::json;
using program::ActionKind;

constexpr std::size_t most_rows = 40;  ///< most rows of the table of kernels

struct Spread {
  double fastest, slowest;
};
Spread spread_of(const Bench& b) {
  const auto [low, high] = std::minmax_element(b.seconds.begin(), b.seconds.end());
  return {*low, *high};
}

/// Returns the seconds of the step that no action and no waiting accounts for. If queues work side by side,
/// the parts may exceed the whole.
double other_seconds(const Bench& b) {
  double sum = b.parts.timings.exposed_communication + b.parts.timings.exposed_drives;
  for (const double s : b.parts.timings.seconds) sum += s;
  return std::max(0.0, b.parts.seconds - sum);
}

std::string tera(double per_second) {
  return fmt::format("{:.3g} TFLOP/s", per_second / 1e12);
}
std::string percent(double share) {
  return fmt::format("{:.1f}%", 100 * share);
}
std::string milliseconds(double seconds) {
  return fmt::format("{:.3f}", 1e3 * seconds);
}

/// Returns the share of the best rate: of the largest product for products, of a copy for everything else.
double share_of_ceiling(const KernelTime& k, const Ceiling& c) {
  if (k.communicates) return 0;
  if (k.flops > 0) return c.flops_per_second > 0 ? k.flops_per_second() / c.flops_per_second : 0;
  return c.bytes_per_second > 0 ? k.bytes_per_second() / c.bytes_per_second : 0;
}

std::string share_of_peak(const Bench& b, const job::Peak& peak) {
  return fmt::format("{} of the dense {} peak, {} ({})", percent(b.model_rate() / peak.flops_per_second),
                     name_of(peak.arithmetic), tera(peak.flops_per_second), peak.source);
}

std::string speed_section(const Bench& b, const config::Deck& deck) {
  std::string text;
  const auto line = [&](const std::string& what, const std::string& value) {
    text += fmt::format("{:<14} {}\n", what, value);
  };
  const Spread spread = spread_of(b);
  line("device", b.device);
  line("model",
       fmt::format("{}, {} parameters", deck.model.preset, format_count(static_cast<double>(b.parameters))));
  line("mesh",
       fmt::format("{} rank{}, {}", b.ranks, b.ranks == 1 ? "" : "s", plan::mesh_shape(deck).describe()));
  line("strategy", config::strategy_summary(deck));
  line("precision", config::precision_summary(deck));
  for (const engine::Note& note : b.notes) line(note.what, (note.warning ? "warning: " : "") + note.text);
  line("tokens/s", fmt::format("{:.1f} over all ranks, {:.1f} a rank", b.tokens_per_second(),
                               b.tokens_per_second() / b.ranks));
  line("step",
       fmt::format("{} ms ({} to {} over {} steps), {} tokens", milliseconds(b.median.seconds),
                   milliseconds(spread.fastest), milliseconds(spread.slowest), b.seconds.size(), b.tokens));
  line("rank's speed", fmt::format("{} of the model, {} with what is recomputed", tera(b.model_rate()),
                                   tera(b.executed_rate())));
  line("MFU", b.peak.flops_per_second > 0
                  ? share_of_peak(b, b.peak)
                  : std::string("not known: the device's peak is in no table; cluster.peak_tflops gives it"));
  if (b.fp8_peak.flops_per_second > 0) line("", share_of_peak(b, b.fp8_peak));
  if (b.ceiling.flops_per_second > 0)
    line("ceiling",
         fmt::format("{} of the {} measured: {}", percent(b.model_rate() / b.ceiling.flops_per_second),
                     tera(b.ceiling.flops_per_second), b.ceiling.product));
  line("copy", fmt::format("{:.1f} GB/s read and written", b.ceiling.bytes_per_second / 1e9));
  line("memory", fmt::format("peak {} of {} planned: arenas {}, outside {}",
                             format_bytes(static_cast<double>(b.memory.peak)),
                             format_bytes(static_cast<double>(b.memory.planned + b.memory.outside)),
                             format_bytes(static_cast<double>(b.memory.planned)),
                             format_bytes(static_cast<double>(b.memory.outside))));
  line("loss", (std::isfinite(b.median.loss) ? fmt::format("{:.4f}", b.median.loss) : "not finite") +
                   (b.median.found_inf ? " (the step was skipped)" : ""));
  return text;
}

std::string action_section(const Bench& b) {
  Table table({b.asynchronous ? "where a step's time goes, with every op timed"
                              : "where the time of the median step goes",
               "ms", "of the step"});
  const auto row = [&](const std::string& what, double seconds) {
    if (seconds > 0) table.row({what, milliseconds(seconds), percent(seconds / b.parts.seconds)});
  };
  for (int k = 0; k < program::action_kind_count; ++k)
    row(std::string(name_of(static_cast<ActionKind>(k))), b.parts.timings.of(static_cast<ActionKind>(k)));
  row("exposed communication", b.parts.timings.exposed_communication);
  row("waiting for NVMe", b.parts.timings.exposed_drives);
  row("other", other_seconds(b));
  table.rule();
  row("step", b.parts.seconds);
  return fmt::format("\n{}", table.text());
}

/// Returns the share of the best rate, or "in caches" for a kernel well above the copy's rate.
std::string share_text(const KernelTime& k, const Ceiling& c) {
  if (k.communicates) return "";
  const double share = share_of_ceiling(k, c);
  return k.flops == 0 && share > 1.2 ? "in caches" : percent(share);
}

std::string kernel_section(const Bench& b) {
  const double sum = std::accumulate(b.kernels.begin(), b.kernels.end(), 0.0,
                                     [](double s, const KernelTime& k) { return s + k.total(); });
  Table table(
      {"kernel, run alone", "operands", "us", "rate", "of ceiling", "a step", "ms a step", "share", "way"});
  for (std::size_t i = 0; i < std::min(b.kernels.size(), most_rows); ++i) {
    const KernelTime& k = b.kernels[i];
    table.row(
        {k.type, k.shape, fmt::format("{:.1f}", 1e6 * k.seconds),
         k.flops > 0 ? tera(k.flops_per_second()) : fmt::format("{:.1f} GB/s", k.bytes_per_second() / 1e9),
         share_text(k, b.ceiling), fmt::to_string(k.count), milliseconds(k.total()), percent(k.total() / sum),
         k.way});
  }
  std::string text = fmt::format("\n{}", table.text());
  if (b.kernels.size() > most_rows)
    text += fmt::format("and {} more, which --json has\n", b.kernels.size() - most_rows);
  return text + fmt::format("all kernels {} ms, {} of the median step\n", milliseconds(sum),
                            percent(sum / b.median.seconds));
}

json known(double value) {
  return value > 0 ? json(value) : json();
}

json kernels_json(const Bench& b) {
  json all = json::array();
  for (const KernelTime& k : b.kernels)
    all.push_back({{"type", k.type},
                   {"operands", k.shape},
                   {"example", k.example},
                   {"action", k.action},
                   {"way", k.way},
                   {"communicates", k.communicates},
                   {"count", k.count},
                   {"seconds", k.seconds},
                   {"total_seconds", k.total()},
                   {"tflops", k.flops > 0 ? json(k.flops_per_second() / 1e12) : json()},
                   {"gb_per_s", k.bytes_per_second() / 1e9},
                   {"share_of_ceiling", known(share_of_ceiling(k, b.ceiling))}});
  return all;
}

json notes_json(const Bench& b) {
  json all = json::array();
  for (const engine::Note& note : b.notes)
    all.push_back({{"what", note.what}, {"text", note.text}, {"warning", note.warning}});
  return all;
}

json peak_json(const job::Peak& peak) {
  return {{"tflops", known(peak.flops_per_second / 1e12)},
          {"arithmetic", std::string(name_of(peak.arithmetic))},
          {"source", peak.source}};
}

json mfu_json(const Bench& b, const job::Peak& peak) {
  return peak.flops_per_second > 0 ? json(b.model_rate() / peak.flops_per_second) : json();
}

json actions_json(const Bench& b) {
  json actions = json::object();
  for (int k = 0; k < program::action_kind_count; ++k) {
    const auto kind = static_cast<ActionKind>(k);
    if (b.parts.timings.of(kind) > 0) actions[std::string(name_of(kind))] = b.parts.timings.of(kind);
  }
  return actions;
}

/// Returns the dims that another program needs to run the same model.
json model_json(const config::Deck& deck) {
  const config::Model& m = deck.model;
  return {{"preset", m.preset},
          {"family", m.family},
          {"hidden_size", m.hidden_size},
          {"intermediate_size", m.intermediate_size},
          {"num_hidden_layers", m.num_hidden_layers},
          {"num_attention_heads", m.num_attention_heads},
          {"num_key_value_heads", m.num_key_value_heads},
          {"head_dim", m.head_dim},
          {"vocab_size", m.vocab_size},
          {"rms_norm_eps", m.rms_norm_eps},
          {"rope_theta", m.rope_theta},
          {"tie_word_embeddings", m.tie_word_embeddings},
          {"attention_bias", m.attention_bias}};
}

json state_json(const config::Deck& deck) {
  const config::Precision& p = deck.precision;
  return {{"parameters", name_of(p.parameters)},
          {"gradients", name_of(p.gradients)},
          {"master", name_of(p.master)},
          {"moments", name_of(p.moments)},
          {"fp8", p.fp8},
          {"recompute", deck.recompute.mode}};
}

}  // namespace

std::string bench_text(const Bench& b, const config::Deck& deck) {
  return speed_section(b, deck) + action_section(b) + (b.kernels.empty() ? "" : kernel_section(b));
}

json bench_json(const Bench& b, const config::Deck& deck, const std::string& version) {
  const Spread spread = spread_of(b);
  const double ceiling = b.ceiling.flops_per_second;
  return {{"ztrain", version},
          {"deck", deck.path},
          {"device", b.device},
          {"ranks", b.ranks},
          {"mesh", plan::mesh_shape(deck).describe()},
          {"strategy", config::strategy_summary(deck)},
          {"precision", config::precision_summary(deck)},
          {"model", model_json(deck)},
          {"parameters", b.parameters},
          {"flops_per_token", b.model_flops},
          {"state", state_json(deck)},
          {"sequence", deck.data.sequence},
          {"micro", deck.batch.micro},
          {"accumulation", config::accumulation_steps(deck)},
          {"tokens_per_step", b.tokens},
          {"tokens_per_s", b.tokens_per_second()},
          {"tokens_per_s_per_rank", b.tokens_per_second() / b.ranks},
          {"step_seconds",
           {{"median", b.median.seconds},
            {"fastest", spread.fastest},
            {"slowest", spread.slowest},
            {"all", b.seconds}}},
          {"tflops", {{"model", b.model_rate() / 1e12}, {"executed", b.executed_rate() / 1e12}}},
          {"peak", peak_json(b.peak)},
          {"mfu", mfu_json(b, b.peak)},
          {"fp8_peak", b.fp8_peak.flops_per_second > 0 ? peak_json(b.fp8_peak) : json()},
          {"fp8_mfu", mfu_json(b, b.fp8_peak)},
          {"ceiling",
           {{"tflops", known(ceiling / 1e12)},
            {"product", b.ceiling.product},
            {"share", ceiling > 0 ? json(b.model_rate() / ceiling) : json()},
            {"copy_gb_per_s", known(b.ceiling.bytes_per_second / 1e9)}}},
          {"timed_step_seconds", b.parts.seconds},
          {"asynchronous", b.asynchronous},
          {"seconds", actions_json(b)},
          {"exposed_communication", b.parts.timings.exposed_communication},
          {"exposed_drives", b.parts.timings.exposed_drives},
          {"other_seconds", other_seconds(b)},
          {"memory",
           {{"planned", b.memory.planned},
            {"arenas", b.memory.arenas ? json(*b.memory.arenas) : json()},
            {"outside", b.memory.outside},
            {"peak", b.memory.peak}}},
          {"loss", b.median.loss},
          {"notes", notes_json(b)},
          {"kernels", kernels_json(b)}};
}

}  // namespace ztrain::bench
