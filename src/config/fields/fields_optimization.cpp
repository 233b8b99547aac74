#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/fields/fields_rows.hpp"
#include "optim/muon.hpp"
#include "optim/optimizer.hpp"
#include "optim/schedule.hpp"

namespace ztrain::config::rows {
namespace {

Pair betas(Deck& deck) {
  return {deck.optimizer.beta1, deck.optimizer.beta2};
}

Legal optimizer_names() {
  return close_to(
      {{"FusedAdam", "adamw"}, {"paged_adamw_8bit", "adamw_8bit"}, {"paged_adamw_32bit", "adamw"}},
      also({{"adamw_torch", "adamw"}, {"adamw_torch_fused", "adamw"}, {"adamw_bnb_8bit", "adamw_8bit"}},
           one_of(optim::names())));
}

Legal schedule_names() {
  return close_to({{"WarmupLR", "constant"},
                   {"WarmupDecayLR", "linear"},
                   {"WarmupCosineLR", "cosine"},
                   {"polynomial", "linear"}},
                  also({{"constant_with_warmup", "constant"},
                        {"cosine_with_min_lr", "cosine"},
                        {"warmup_stable_decay", "wsd"}},
                       one_of(optim::schedule_names())));
}

std::string optimizer_doc() {
  std::string doc;
  for (const optim::Info& rule : optim::table())
    doc += fmt::format("{}{}: {}.", doc.empty() ? "" : " ", rule.name, rule.doc);
  return doc;
}

std::string schedule_doc() {
  std::string doc = "Course of the learning rate after the warmup.";
  for (const optim::ScheduleInfo& row : optim::schedules()) doc += fmt::format(" {}: {}.", row.name, row.doc);
  return doc;
}

std::string decay_doc() {
  std::vector<std::string_view> names;
  for (const optim::ScheduleInfo& row : optim::schedules())
    if (row.needs_decay) names.push_back(row.name);
  return fmt::format("Length of {}'s final decay; other schedules do not use it.", fmt::join(names, " or "));
}

}  // namespace

std::vector<Field> optimization() {
  return {
      numeric({KEY_OF(optimizer, name), R"("adamw")", "", optimizer_names(), optimizer_doc()}),
      on_request(numeric({KEY_OF(optimizer, lr), "3e-4", "", above(0), "Peak learning rate."})),
      on_request(numeric({"optimizer.betas", &betas, "[0.9, 0.95]", "", below_one(),
                          "Decay of the running means of the gradient and of its square."})),
      on_request(
          numeric({KEY_OF(optimizer, eps), "1e-8", "", above(0), "Added to the root of the second moment."})),
      on_request(
          numeric({KEY_OF(optimizer, weight_decay), "0.1", "", from(0),
                   "Decay of matrices and embeddings; norms and biases are not decayed, unless a row of "
                   "optimizer.groups gives them one."})),
      on_request(numeric({KEY_OF(optimizer, max_norm), "1.0", "", also({{"false", "0"}}, from(0)),
                          "Bound on the global L2 norm of the gradient. 0: no clipping."})),
      on_request(numeric({KEY_OF(optimizer, momentum), "0.9", "", below_one(),
                          "sgd: decay of the running sum of gradients; 0: no sum is kept. muon: decay of the "
                          "running mean of gradients; 0.95 if the key is not given."})),
      on_request(numeric({KEY_OF(optimizer, nesterov), "false", "", any(),
                          "sgd and muon look one step of their momentum ahead. For muon the key is true if "
                          "it is not given."})),
      on_request(numeric({KEY_OF(optimizer, muon_scale), R"("rms")", "",
                          also({{"match_rms_adamw", "rms"}, {"original", "spectral"}},
                               one_of({std::begin(optim::muon_scales), std::end(optim::muon_scales)})),
                          "Factor by which muon scales the step of a matrix. rms: 0.2 sqrt(max(rows, "
                          "columns)), so that a learning rate for adamw fits (Liu et al., 2025). spectral: "
                          "sqrt(max(1, rows / columns)), as Jordan has it."})),
      on_request(
          numeric({KEY_OF(optimizer, ema_decay), "0.0", "", below_one(),
                   "Decay of a moving average of each trained parameter, which begins as the parameter "
                   "and is kept in fp32 beside the optimizer's state. 0: none is kept. `ztrain export "
                   "--ema` and `ztrain evaluate --ema` take the averages in place of the weights."})),
      on_request(numeric({KEY_OF(optimizer, freeze_step), "0", "steps", count(0),
                          "Warm-up of onebit_adam, in which it is adamw; then the second moment stays, and "
                          "ranks of mesh.replicate sum up the momentum in one bit an element."})),
      free({KEY_OF(optimizer, during_backward), "false", "", any(),
            "Whether each unit is stepped once its gradient is reduced, while backward goes on, and its "
            "gradient let go: with one micro-batch to a step, or sharding.gradient_accumulation = "
            "\"no_sync\", few are alive at once. Needs optimizer.max_norm = 0. A step whose gradients are "
            "not finite cannot be skipped then: the run ends."}),
      on_request(
          numeric({KEY_OF(optimizer, no_decay), "[]", "", any(),
                   "Patterns (*, ?, [...]) of the names of parameters that are not decayed, beside norms and "
                   "biases."})),
      on_request(numeric(
          {KEY_OF(optimizer, groups), "[]", "", any(),
           "Parameters that are stepped differently, such as [{match = \"model.embed_tokens.*\", "
           "lr_scale = 0.1, weight_decay = 0.0}]: match is a pattern of their names, lr_scale a factor "
           "on the learning rate (default 1), weight_decay their decay (default: as without the row; "
           "given, it counts for norms and biases too). Of several rows that match, the last counts."})),
      on_request(numeric({KEY_OF(schedule, name), R"("cosine")", "", schedule_names(), schedule_doc()})),
      on_request(
          numeric({KEY_OF(schedule, warmup), "0", "steps", count_or_share(),
                   "The learning rate rises linearly over this many steps. Below 1: over this share of the "
                   "run's steps, rounded up to whole ones."})),
      on_request(numeric({KEY_OF(schedule, min_lr_ratio), "0.1", "", between(0, 1),
                          "Final learning rate over optimizer.lr."})),
      on_request(numeric({KEY_OF(schedule, decay), "0", "steps", count(0), decay_doc()})),
  };
}

}  // namespace ztrain::config::rows
