#include "config/text/print.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "base/text.hpp"
#include "config/architectures.hpp"
#include "config/block_layout.hpp"
#include "config/fields/value.hpp"
#include "config/hf/own_head.hpp"
#include "config/validate/refusals.hpp"
#include "config/validate/validate.hpp"
#include "optim/optimizer.hpp"

namespace ztrain::config {

namespace {

/// Returns the text with "# " before each line, broken between words at 100 columns.
std::string comment(const std::string& text) {
  std::string result(1, '#');
  std::size_t column = 1;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    if (column + 1 + (end - begin) > 100) result.append("\n#"), column = 1;
    result.append(" ").append(text, begin, end - begin);
    column += 1 + (end - begin);
    begin = end + 1;
  }
  return result.append("\n");
}

std::string facts(const Field& field) {
  std::string text = field.standard.empty() ? "Must be given" : fmt::format("Default: {}", field.standard);
  if (!field.unit.empty()) text += fmt::format(". Unit: {}", field.unit);
  return fmt::format("{}. Legal: {}.", text, legal_text(field));
}

std::string template_entry(const Field& field) {
  const std::string setting = field.example.empty() ? fmt::format("#{} = {}", field.member(), field.standard)
                                                    : fmt::format("{} = {}", field.member(), field.example);
  return fmt::format("\n{}{}{}\n", comment(field.doc), comment(facts(field)), setting);
}

std::string may_change(const Field& field) {
  if (!field.rounds_with.empty()) return fmt::format("yes; on request with `{}`", field.rounds_with);
  if (field.on_resume == OnResume::never) return "no";
  return field.on_resume == OnResume::free ? "yes" : "on request";
}

std::string markdown_row(const Field& field) {
  return fmt::format("| `{}` | {} | {} | {} | {} | {} | {} |\n", field.member(), type_name(field),
                     field.standard.empty() ? "*must be given*" : fmt::format("`{}`", field.standard),
                     field.unit, markdown_cell(legal_text(field)), may_change(field),
                     markdown_cell(field.doc));
}

constexpr const char* markdown_head = R"(# The input deck

This page is generated from the field table in `src/config/fields/fields_*.cpp`: `ztrain deck --markdown > docs/inputs.md`.
`ztrain deck` prints the same as a commented deck to start from.

A deck is a [TOML](https://toml.io) file. Every key can be given on the command line too, where it wins over the file, a list as `a,b`
and an empty list as nothing (`--data.validation=`):
`ztrain input.toml --optimizer.lr=1e-4 --run.steps=2000`. An unknown key, a value that is not legal, or two keys that
contradict each other stop the program with the file and the line. A message names a dozen of what it lists, and all of them with `--all`,
which every command takes. The run's output folder receives the resolved deck, in
which each value has a comment that tells where it came from.

Of what a run reads, a path in a deck is relative to the folder of the deck, so that decks and data can be moved together. All
other paths are relative to the folder in which ztrain is started: those of what a run writes (`run.output`, `checkpoint.folder`,
`checkpoint.export`, `device.algorithms`), and whatever is typed on the command line, where shells complete names. So what
ztrain prints can be typed as it is; checkpoints and exported models are printed as whole paths, which mean the same everywhere.
`${VAR}` stands for an environment variable.

"May change" tells which keys may differ when a run is resumed from a checkpoint: yes, no, or only if `checkpoint.override` names
them ([checkpoints.md](checkpoints.md#other-keys-for-the-rest-of-a-run)).
)";

}  // namespace

std::string deck_template() {
  std::string text = "# Input deck of ztrain. Keys that are commented out show their defaults.\n";
  std::string section;
  for (const auto& field : fields()) {
    if (field.section() != section) {
      section = field.section();
      text += fmt::format("\n\n{}[{}]\n", comment(section_doc(section)), section);
    }
    text += template_entry(field);
  }
  return text;
}

std::string inputs_markdown() {
  std::string text = markdown_head;
  std::string section;
  for (const auto& field : fields()) {
    if (field.section() != section) {
      section = field.section();
      text += fmt::format("\n## [{}]\n\n{}\n\n", section, section_doc(section));
      text += "| key | type | default | unit | legal | may change | meaning |\n";
      text += "| --- | --- | --- | --- | --- | --- | --- |\n";
    }
    text += markdown_row(field);
  }
  return text + refusals_markdown();
}

std::string resolved_toml(const Deck& deck) {
  std::string text = fmt::format("# {} as ztrain resolved it, and where each value came from.\n", deck.path);
  std::string section;
  for (std::size_t i = 0; i < fields().size(); ++i) {
    const Field& field = fields()[i];
    if (field.section() != section) {
      section = field.section();
      text += fmt::format("\n[{}]\n", section);
    }
    const bool known = i < deck.origins.size();
    text += fmt::format("{}{} = {}  # {}\n", known && !deck.origins[i].used ? "#" : "", field.member(),
                        render(field, deck), known ? deck.origins[i].source : "default");
  }
  return text;
}

std::uint64_t deck_hash(const Deck& deck) {
  std::string text;
  for (const auto& field : fields()) {
    if (field.numeric) text += fmt::format("{} = {}\n", field.key, render(field, deck));
  }
  return hash_text(text);
}

namespace {

std::string recompute_summary(const Recompute& r) {
  std::string text = r.mode == "selective" ? fmt::format("{}", fmt::join(r.pieces, " ")) : r.mode;
  if (r.mode == "full" && r.every > 1) text += fmt::format(", every {} blocks", r.every);
  return r.tiles > 1 ? text + fmt::format(", feed-forwards in {} parts", r.tiles) : text;
}

/// Returns ", name value" unless value is 0.
std::string given(const char* name, std::int64_t value) {
  return value == 0 ? "" : fmt::format(", {} {}", name, value);
}

/// Describes what the optimizer keeps: each dtype once, "uint8 + fp32 per 256" if some are for blocks of
/// elements.
std::string moments_summary(const Deck& deck) {
  const Optimizer& o = deck.optimizer;
  std::vector<std::string> parts;
  for (const optim::StateInfo& state : optim::kept_states(optim::find(o.name), o.settings(),
                                                          deck.precision.master, deck.mesh.replicate > 1)) {
    std::string part(name_of(state.dtype.value_or(deck.precision.moments)));
    if (state.granule > 1) part += fmt::format(" per {}", state.granule);
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
  }
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, " + "));
}

}  // namespace

std::string strategy_summary(const Deck& deck) {
  const Sharding& s = deck.sharding;
  std::string text =
      fmt::format("{}, gradients {}, reshard {}, prefetch {} and {}, units by {}, recompute {}", s.strategy,
                  s.gradient_accumulation, s.reshard_after_forward, s.forward_prefetch, s.backward_prefetch,
                  s.unit, recompute_summary(deck.recompute));
  text += given("at most gathered units", s.max_gathered_units);
  text += given("live parameters", s.max_live_parameters);
  text += given("reuse distance", s.max_reuse_distance);
  if (s.gather_codes != "none") text += ", gathered as " + s.gather_codes;
  if (s.reduce_codes != "none") text += ", reduced as " + s.reduce_codes;
  text += given("kept whole below", s.persistence_threshold);
  text += given("reduced in buckets of", s.reduce_bucket_size);
  return text + (s.overlap_reduce ? "" : ", reductions not overlapped");
}

std::string attention_summary(const Deck& deck) {
  const SparseAttention& sparse = deck.sparse_attention;
  if (!sparse.is_on()) return "";
  const std::vector<std::int64_t> layout = block_layout(sparse, deck.data.sequence);
  if (layout.empty()) return fmt::format("{}, {} is not here: all blocks", sparse.mode, sparse.layout);
  int seen = 0;
  for (std::size_t i = 2; i < layout.size(); ++i)
    seen += std::popcount(static_cast<std::uint64_t>(layout[i]));
  const std::int64_t blocks = deck.data.sequence / sparse.block;
  return fmt::format("{}, {} of {} blocks of {} tokens", sparse.mode, seen, blocks * (blocks + 1) / 2,
                     sparse.block);
}

std::string precision_summary(const Deck& deck) {
  const Precision& p = deck.precision;
  std::string text =
      fmt::format("parameters {}, gradients {}, reduce {}, master {}, moments {}", name_of(p.parameters),
                  name_of(p.gradients), name_of(p.reduce), name_of(p.master), moments_summary(deck));
  if (stochastic_rounding(deck)) text += ", stochastic rounding";
  const LossScaling& l = deck.loss_scaling;
  if (p.parameters == DType::f16)
    text += l.scale > 0 ? fmt::format(", loss scale {}", l.scale)
                        : fmt::format(", loss scale from 2^{}", l.initial_scale_power);
  return text;
}

std::string optimizer_summary(const Deck& deck) {
  const Optimizer& o = deck.optimizer;
  std::string text = fmt::format("{}{}, lr {} ({}), weight decay {}, clip {}{}", o.name,
                                 o.name == "muon" && o.muon_scale != "rms" ? " of scale " + o.muon_scale : "",
                                 o.lr, deck.schedule.name, o.weight_decay, o.max_norm,
                                 given("groups", static_cast<std::int64_t>(o.groups.size())));
  return o.ema_decay > 0 ? text + fmt::format(", averages of decay {}", o.ema_decay) : text;
}

std::string saving_summary(const Deck& deck, double bytes) {
  const Checkpoint& c = deck.checkpoint;
  if (c.interval < 0) return "none (checkpoint.interval = -1)";
  const std::string size = format_decimal_bytes(bytes);
  if (c.interval == 0)
    return fmt::format("{}, at the end alone (checkpoint.interval = 0): after a crash all starts anew", size);
  // A new checkpoint is complete before the oldest is removed.
  const std::string room = c.keep == 0
                               ? "all are kept (checkpoint.keep = 0)"
                               : fmt::format("room for {} (checkpoint.keep = {})", c.keep + 1, c.keep);
  return fmt::format("{} each, every {} and at the end; {}", size, count_text(c.interval, "step"), room);
}

std::string device_note(const Deck& deck, std::string_view device) {
  if (deck.debug.asynchronous) return "";  // CPUs then work as GPUs do
  std::vector<std::string> idle;
  for (const Field& f : fields())
    if (!f.only_on.empty() && f.only_on != device && is_explicit(deck, f.key) &&
        render(f, deck) != f.standard)
      idle.push_back(fmt::format("{} = {} ({})", f.key, render(f, deck), source_of(deck, f.key)));
  return idle.empty() ? "" : fmt::format("without effect on {}s: {}", device, fmt::join(idle, ", "));
}

std::string offload_summary(const Deck& deck) {
  const Offload& o = deck.offload;
  std::vector<std::pair<std::string, std::string>> sent;  // tier, and what is sent there
  for (const auto& [what, home] :
       {std::pair("parameters", &o.parameters), std::pair("gradients", &o.gradients),
        std::pair("master", &o.master), std::pair("optimizer", &o.optimizer),
        std::pair("activations", &o.activations)}) {
    if (home->to == "none") continue;
    const std::string to =
        home->to + (home->fraction < 1 ? fmt::format(" ({} of them)", home->fraction) : "");
    const auto same = std::ranges::find(sent, to, &std::pair<std::string, std::string>::first);
    if (same == sent.end())
      sent.emplace_back(to, what);
    else
      same->second += fmt::format(", {}", what);
  }
  std::string text;
  for (const auto& [to, what] : sent) text += fmt::format("{}{} -> {}", text.empty() ? "" : "; ", what, to);
  return o.optimizer_ahead ? text + "; steps ahead of the norm" : text;
}

std::string context_note(const Deck& deck) {
  const std::int64_t made_for = deck.model.origin_positions;
  if (made_for == 0 || deck.data.sequence <= made_for) return "";
  return fmt::format("data.sequence ({}) is above the {} tokens that the model was made for",
                     deck.data.sequence, made_for);
}

std::string head_note(const Deck& deck) {
  if (!source_of(deck, "model.tie_word_embeddings").ends_with(own_head_source)) return "";
  return fmt::format(
      "{} differs from {}, although config.json ties them (tie_word_embeddings): both are kept, as "
      "transformers 5 does; model.tie_word_embeddings = true keeps the embedding alone",
      head_weight, embedding_weight);
}

std::string trained_summary(const Deck& deck, std::int64_t trained, std::int64_t parameters) {
  if (trained == parameters) return "";
  const double part = static_cast<double>(trained), whole = static_cast<double>(parameters);
  std::string text = fmt::format("{} of {} parameters ({:.2f}%)", format_count(part), format_count(whole),
                                 100 * part / whole);
  const Lora& l = deck.lora;
  if (l.rank > 0)
    text +=
        fmt::format(", adapters of rank {} (alpha {}{}) on {}", l.rank, l.alpha,
                    l.dropout > 0 ? fmt::format(", dropout {}", l.dropout) : "", fmt::join(l.targets, ", "));
  if (!deck.model.trainable.empty()) text += fmt::format(", {}", fmt::join(deck.model.trainable, ", "));
  if (!deck.model.frozen.empty()) text += fmt::format(", without {}", fmt::join(deck.model.frozen, ", "));
  return text;
}

}  // namespace ztrain::config
