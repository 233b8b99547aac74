// Refused combinations of keys of what is trained, and towards what: adapters, losses on answers,
// distillation.

#include "base/preference_loss.hpp"
#include "config/validate/refusals.hpp"

namespace ztrain::config {
namespace {

constexpr Refusal tuning_table[]{
    {"model.frozen model.trainable lora.rank",
     "model.frozen freezes every parameter: nothing is left to train"},
    {"model.add_tokens model.from",
     "{at}: model.add_tokens = {model.add_tokens} adds tokens to the vocabulary of model.from, and there is "
     "none: set model.vocab_size, or model.from",
     [](const Deck& d) { return d.model.add_tokens > 0 && d.model.from.empty(); }},
    {"lora.rank model.from lora.random_base",
     "{at}: lora.rank = {lora.rank} trains adapters of a model whose weights would be drawn at random: set "
     "model.from to the model that they belong to, or lora.random_base = true if random weights are what you "
     "want"},
    {"preference.loss_type data.packing",
     "{at}: preference.loss_type = \"{preference.loss_type}\" is of pairs of documents, and data.packing = "
     "\"windows\" does not know documents; nearest legal: auto",
     [](const Deck& d) { return d.preference.is_on() && d.data.packing == "windows"; }},
    {"preference.loss_type data.long_documents",
     "{at}: data.long_documents = \"split\" would part the answers of preference.loss_type = "
     "\"{preference.loss_type}\"; nearest legal: truncate, drop",
     [](const Deck& d) { return d.preference.is_on() && d.data.long_documents == "split"; }},
    {"preference.loss_type data.max_documents",
     "{at}: data.max_documents = 1 leaves no room in a sequence for a pair of answers, which "
     "preference.loss_type = \"{preference.loss_type}\" compares; nearest legal: 2",
     [](const Deck& d) { return d.preference.is_on() && d.data.max_documents == 1; }},
    {"preference.loss_type data.sequence",
     "{at}: data.sequence = {data.sequence} is too short for a pair of answers of two tokens each, which "
     "preference.loss_type = \"{preference.loss_type}\" compares; nearest legal: 4",
     [](const Deck& d) { return d.preference.is_on() && d.data.sequence < 4; }},
    {"preference.loss_type experts.balance",
     "{at}: preference.loss_type = \"{preference.loss_type}\" is a mean over pairs, and the loss of "
     "experts.balance = \"{experts.balance}\" one over tokens: set experts.balance = \"none\"",
     [](const Deck& d) {
       return d.preference.is_on() && d.experts.balance != "none" && d.model.router_aux_loss_coef > 0 &&
              d.model.num_experts > 0;
     }},
    {"preference.loss_type experts.z_loss",
     "{at}: preference.loss_type = \"{preference.loss_type}\" is a mean over pairs, and experts.z_loss = "
     "{experts.z_loss} one over tokens; nearest legal: 0",
     [](const Deck& d) { return d.preference.is_on() && d.experts.z_loss > 0; }},
    {"preference.label_smoothing preference.loss_type",
     "{at}: preference.label_smoothing = {preference.label_smoothing} does not go with preference.loss_type "
     "= "
     "\"{preference.loss_type}\"; {legal}",
     [](const Deck& d) {
       if (!d.preference.is_on()) return false;
       const bool smooth = d.preference.label_smoothing > 0;
       if (d.preference.loss_type == "exo_pair") return !smooth;
       return smooth && !find_pair_loss(d.preference.loss_type).smoothed;
     },
     [](const Deck& d) {
       const bool exo = d.preference.loss_type == "exo_pair";
       return Words{{"legal", exo ? "it must be above 0, such as 1e-3" : "nearest legal: 0"}};
     }},
    {"loss.label_smoothing preference.loss_type",
     "{at}: loss.label_smoothing = {loss.label_smoothing} is of the loss of tokens, and preference.loss_type "
     "= "
     "\"{preference.loss_type}\" has preference.label_smoothing; nearest legal: 0",
     [](const Deck& d) { return d.preference.is_on() && d.loss.label_smoothing > 0; }},
    {"loss.z_loss preference.loss_type",
     "{at}: loss.z_loss = {loss.z_loss} is of the loss of tokens, and does not go with preference.loss_type "
     "= "
     "\"{preference.loss_type}\"; nearest legal: 0",
     [](const Deck& d) { return d.preference.is_on() && d.loss.z_loss > 0; }},
    {"distillation.teacher preference.loss_type",
     "{at}: distillation.teacher has likelihoods of words, and preference.loss_type = "
     "\"{preference.loss_type}\" is a loss of whole answers: leave one of them out",
     [](const Deck& d) { return d.distillation.is_on() && d.preference.is_on(); }},
    {"distillation.teacher loss.label_smoothing",
     "{at}: distillation.teacher smooths labels with the teacher's likelihoods, and loss.label_smoothing = "
     "{loss.label_smoothing} with all words; nearest legal: 0",
     [](const Deck& d) { return d.distillation.is_on() && d.loss.label_smoothing > 0; }},
    {"distillation.teacher loss.z_loss",
     "{at}: the loss of distillation.teacher does not go with loss.z_loss = {loss.z_loss}; nearest legal: 0",
     [](const Deck& d) { return d.distillation.is_on() && d.loss.z_loss > 0; }},
    {"distillation.teacher model.final_logit_softcapping",
     "{at}: distillation.teacher does not go with capped logits (model.final_logit_softcapping = "
     "{model.final_logit_softcapping}) of {model.family}",
     [](const Deck& d) { return d.distillation.is_on() && d.model.final_logit_softcapping > 0; }},
    {"distillation.top_k model.vocab_size",
     "{at}: distillation.top_k ({distillation.top_k}) is above model.vocab_size ({model.vocab_size}); "
     "nearest "
     "legal: {model.vocab_size}",
     [](const Deck& d) {
       return d.distillation.is_on() && d.model.vocab_size > 0 && d.distillation.top_k > d.model.vocab_size;
     }},
    {"preference.desirable_weight preference.undesirable_weight preference.loss_type",
     "{at}: preference.desirable_weight and preference.undesirable_weight are of answers with labels, and "
     "preference.loss_type = \"{preference.loss_type}\" is of pairs; nearest legal: 1.0",
     [](const Deck& d) {
       const Preference& p = d.preference;
       return p.is_on() && !find_pair_loss(p.loss_type).labelled &&
              (p.desirable_weight != 1 || p.undesirable_weight != 1);
     }},
    {"preference.center_rewards_coefficient preference.loss_type",
     "{at}: preference.center_rewards_coefficient = {preference.center_rewards_coefficient} is of reward "
     "models, "
     "and preference.loss_type = \"{preference.loss_type}\" trains none; nearest legal: 0",
     [](const Deck& d) {
       return d.preference.center_rewards > 0 && !is_reward_loss(d.preference.loss_type);
     }},
    {"lora.dora lora.rank",
     "{at}: lora.dora = true gives layers with adapters magnitudes, and lora.rank = 0 makes no adapters; "
     "nearest legal: false",
     [](const Deck& d) { return d.lora.dora && d.lora.rank <= 0; }},
    {"lora.dora precision.fp8",
     "{at}: lora.dora = true needs the rows of weights of which precision.fp8 = {precision.fp8} keeps codes; "
     "choose one of them",
     [](const Deck& d) { return d.lora.dora && d.precision.fp8 != "none"; }},
    {"lora.dora lora.quantization lora.random_base",
     "{at}: lora.dora = true starts magnitudes as norms of rows of model.from, and lora.quantization = "
     "{lora.quantization} keeps codes of weights that are drawn (lora.random_base); set lora.random_base = "
     "false and model.from, or lora.quantization = \"none\"",
     [](const Deck& d) { return d.lora.dora && d.lora.quantization != "none" && d.lora.random_base; }},
    {"lora.dora lora.targets",
     "lora.dora = true: magnitudes of experts' outputs are not there, and lora.targets names '{target}'; set "
     "lora.dora = false, or leave experts out of lora.targets"},
    {"lora.quantization lora.rank",
     "{at}: lora.quantization = {lora.quantization} keeps weights that adapters stand beside in few bits, "
     "and "
     "lora.rank = 0 makes no adapters; nearest legal: none",
     [](const Deck& d) { return d.lora.quantization != "none" && d.lora.rank <= 0; }},
    {"lora.quantization precision.fp8",
     "{at}: lora.quantization = {lora.quantization} does not go with precision.fp8 = {precision.fp8}, which "
     "makes codes of its own of the same weights; choose one of them",
     [](const Deck& d) { return d.lora.quantization != "none" && d.precision.fp8 != "none"; }},
    {"lora.quantization model.num_experts",
     "lora.quantization = \"{quantization}\": weights of experts are not kept in few bits; nearest legal: "
     "none"},
    {"lora.quantization model.trainable",
     "lora.quantization = \"{quantization}\": every linear layer of the blocks is trained "
     "(model.trainable), and none is left to quantise; nearest legal: none"},
    {"mesh.tensor lora.quantization",
     "{at}: mesh.tensor = {mesh.tensor}: lora.quantization = {lora.quantization} needs parts of weights that "
     "are whole blocks of {block} elements; nearest legal: {nearest} (legal for this model: {legal})"},
    {"lora.rank lora.targets",
     "lora.rank = {rank} needs lora.targets, the layers that get adapters, and they are empty"},
};

}  // namespace

std::span<const Refusal> tuning_refusals() {
  return tuning_table;
}

}  // namespace ztrain::config
