#include <algorithm>

#include "base/error.hpp"
#include "config/presets.hpp"
#include "config/validate/validate.hpp"
#include "config/validate/validate_rules.hpp"

namespace ztrain::config {
namespace {

void check_patterns(const Deck& deck, const char* key, const std::vector<std::string>& patterns) {
  REQUIRE(std::find(patterns.begin(), patterns.end(), "") == patterns.end(),
          "{}: {} holds an empty pattern, which matches no name; leave it out", source_of(deck, key), key);
}

/// Its tokens would count once, or twice with data.weights.
void require_each_once(const Deck& deck, const char* key, std::vector<std::string> entries) {
  std::ranges::sort(entries);
  const auto again = std::ranges::adjacent_find(entries);
  REQUIRE(again == entries.end(),
          "{}: {} names '{}' twice; once is enough (data.weights says how often files are drawn from)",
          source_of(deck, key), key, *again);
}

}  // namespace

void check_watchdog(const Deck& deck) {
  REQUIRE(deck.watchdog.audit_interval == 0 || deck.device.deterministic,
          "{}: watchdog.audit_interval = {} needs device.deterministic = true: steps are computed twice, and "
          "are to have the same bits",
          blame(deck, {"watchdog.audit_interval", "device.deterministic"}), deck.watchdog.audit_interval);
}

void check_data(const Deck& deck) {
  const Data& d = deck.data;
  require_each_once(deck, "data.train", d.train);
  require_each_once(deck, "data.validation", d.validation);
  REQUIRE(!d.train.empty(), "{}: data.train is empty; name files or patterns", source_of(deck, "data.train"));
  REQUIRE(d.weights.empty() || d.weights.size() == d.train.size(),
          "{}: data.weights has {} numbers for the {} entries of data.train; give one for each, or none",
          source_of(deck, "data.weights"), d.weights.size(), d.train.size());
  REQUIRE(deck.evaluation.interval == 0 || !d.validation.empty() || d.validation_fraction > 0,
          "{}: evaluation.interval = {} needs validation data: give data.validation, or a "
          "data.validation_fraction above 0",
          source_of(deck, "evaluation.interval"), deck.evaluation.interval);
}

/// `list` says what `key` means where it is `choice`, and nothing where it is something else.
void check_list_of(const Deck& deck, const char* key, const std::string& value, const char* choice,
                   const char* list, bool has_some, const char* what) {
  const bool chosen = value == choice;
  REQUIRE(!chosen || has_some, "{}: {} = \"{}\" needs {}, {}", source_of(deck, key), key, choice, list, what);
  REQUIRE(chosen || !has_some, "{}: {} is used by {} = \"{}\" only, and that is \"{}\"; choose one of them",
          source_of(deck, list), list, key, choice, value);
}

void check_sharding(const Deck& deck) {
  const Sharding& s = deck.sharding;
  check_list_of(deck, "sharding.unit", s.unit, "pattern", "sharding.unit_patterns", !s.unit_patterns.empty(),
                "the patterns of modules' names, such as [\"model.layers.*.mlp\"]");
  check_patterns(deck, "sharding.unit_patterns", s.unit_patterns);
}

void check_recompute(const Deck& deck) {
  const Recompute& r = deck.recompute;
  check_list_of(deck, "recompute.mode", r.mode, "selective", "recompute.pieces", !r.pieces.empty(),
                "what is run again, such as [\"norm\", \"swiglu\"]");
  REQUIRE(r.every == 1 || r.mode == "full",
          "{}: recompute.every = {} needs recompute.mode = \"full\", and that is \"{}\"; nearest legal: 1",
          source_of(deck, "recompute.every"), r.every, r.mode);
}

void check_optimizer(const Deck& deck) {
  const Optimizer& o = deck.optimizer;
  REQUIRE(!o.nesterov || o.momentum > 0,
          "{}: optimizer.nesterov = true needs a momentum, and optimizer.momentum = 0; nearest legal: false",
          blame(deck, {"optimizer.nesterov", "optimizer.momentum"}));
  check_patterns(deck, "optimizer.no_decay", o.no_decay);
  REQUIRE(!o.during_backward || o.max_norm == 0,
          "{}: optimizer.during_backward = true steps before the gradient's norm is known, and "
          "optimizer.max_norm = {} clips by it; nearest legal: false",
          blame(deck, {"optimizer.during_backward", "optimizer.max_norm"}), o.max_norm);
  REQUIRE(!o.during_backward || deck.precision.parameters != DType::f16,
          "{}: optimizer.during_backward = true takes steps that cannot be skipped, and precision.parameters "
          "= \"fp16\" finds its loss scale by skipping some; nearest legal: false",
          blame(deck, {"optimizer.during_backward", "precision.parameters", "precision.preset"}));
  REQUIRE(!o.during_backward || deck.mesh.pipeline == 1,
          "{}: optimizer.during_backward = true is not there for stages of a pipeline (mesh.pipeline = {}); "
          "nearest legal: false",
          blame(deck, {"optimizer.during_backward", "mesh.pipeline"}), deck.mesh.pipeline);
}

void check_checkpoint(const Deck& deck) {
  const Checkpoint& c = deck.checkpoint;
  REQUIRE(c.keep_every == 0 || c.interval <= 0 || c.keep_every % c.interval == 0,
          "{}: checkpoint.keep_every = {} is no multiple of checkpoint.interval = {}, so that few steps of "
          "the one are of the other; nearest legal: {}",
          source_of(deck, "checkpoint.keep_every"), c.keep_every, c.interval,
          std::max<std::int64_t>(1, c.keep_every / c.interval) * c.interval);
  REQUIRE(c.keep_best == 0 || deck.evaluation.interval > 0,
          "{}: checkpoint.keep_best = {} needs validation losses, and evaluation.interval = 0 computes none; "
          "nearest legal: 0",
          source_of(deck, "checkpoint.keep_best"), c.keep_best);
  REQUIRE(c.memory_copies == 0 || c.interval >= 0,
          "{}: checkpoint.memory_copies = {} goes on from snapshots as from checkpoints, and "
          "checkpoint.interval = -1 writes none; nearest legal: 0",
          source_of(deck, "checkpoint.memory_copies"), c.memory_copies);
  REQUIRE(c.export_to.empty() || c.interval >= 0,
          "{}: checkpoint.export needs the checkpoint at the end of the run, and checkpoint.interval = -1 "
          "writes none; nearest legal: 0",
          source_of(deck, "checkpoint.export"));
  REQUIRE(!c.export_adapter || deck.lora.rank > 0,
          "{}: checkpoint.export_adapter = true needs adapters, and lora.rank = 0; nearest legal: false",
          source_of(deck, "checkpoint.export_adapter"));
  REQUIRE(!c.export_adapter || deck.model.trainable.empty(),
          "{}: checkpoint.export_adapter = true writes the adapters alone, and model.trainable has weights "
          "of the model trained beside them: leave one of the two out",
          source_of(deck, "checkpoint.export_adapter"));
}

void check_cluster(Deck& deck) {
  Cluster& c = deck.cluster;
  if (source_of(deck, "cluster.peak_tflops").rfind("preset", 0) == 0 &&
      size_of(deck.precision.parameters) != 2) {
    c.peak_tflops = cluster_peak(c.preset, deck.precision.parameters);
    if (c.peak_tflops == 0)
      set_source(deck, "cluster.peak_tflops",
                 fmt::format("preset {} knows no peak in {}", c.preset, name_of(deck.precision.parameters)));
  }
  REQUIRE(c.device_memory == 0 || c.outside_memory < c.device_memory,
          "{}: cluster.outside_memory ({} GB) leaves nothing of cluster.device_memory ({} GB); it is a part "
          "of it",
          blame(deck, {"cluster.outside_memory", "cluster.device_memory", "cluster.preset"}),
          c.outside_memory, c.device_memory);
}

}  // namespace ztrain::config
