#include "config/fields.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>

#include "config/presets.hpp"

namespace ztrain::config {
namespace {

template <auto Section, auto Member>
auto& at(Deck& deck) {
  return (deck.*Section).*Member;
}
Pair betas(Deck& deck) {
  return {deck.optimizer.beta1, deck.optimizer.beta2};
}

Legal any() {
  return {};
}
Legal from(double least) {
  return {.least = least};
}
Legal above(double least) {
  return {.least = least, .open_least = true};
}
Legal between(double least, double most) {
  return {.least = least, .most = most};
}
Legal below_one() {
  return {.least = 0, .most = 1, .open_most = true};
}
Legal degree() {
  return {.least = 1, .most = 1e6, .minus_one = true};
}
Legal one_of(std::vector<std::string> choices) {
  return {.choices = std::move(choices)};
}
Legal dtypes() {
  return one_of({"fp32", "bf16", "fp64"});
}

Legal strategies() {
  Legal legal = one_of({"NO_SHARD", "zero1", "zero2", "SHARD_GRAD_OP", "FULL_SHARD", "HYBRID_SHARD"});
  legal.aliases = {{"zero0", "NO_SHARD"}, {"ddp", "NO_SHARD"}, {"zero3", "FULL_SHARD"}};
  return legal;
}

// Marks of rows, so that one row stays one statement.
Field free(Field f) {
  return f.free_on_resume = true, f;
}
Field numeric(Field f) {
  return f.numeric = true, f;
}
Field path(PathKind kind, Field f) {
  return f.path = kind, f;
}
Field example(std::string value, Field f) {
  return f.example = std::move(value), f;
}

// Each row: key, access, default, unit, legal values, documentation.
std::vector<Field> run_and_data() {
  return {
      free(path(
          PathKind::from_working_folder,
          {"run.output", &at<&Deck::run, &Run::output>, R"("")", "", any(),
           "Folder that receives the resolved deck, metrics and checkpoints; relative to the working folder. "
           "Empty: runs/ followed by the deck's name without its extension."})),
      numeric({"run.seed", &at<&Deck::run, &Run::seed>, "1234", "", from(0),
               "Seed of the initial weights and of the order of the data."}),
      free(numeric(
          example("1000", {"run.steps", &at<&Deck::run, &Run::steps>, "0", "steps", from(0),
                           "Length of the run in optimizer steps. Exactly one of steps, tokens and epochs is "
                           "given; 0 means not given."}))),
      free(numeric({"run.tokens", &at<&Deck::run, &Run::tokens>, "0", "tokens", from(0),
                    "Length of the run in tokens, rounded up to whole steps."})),
      free(numeric({"run.epochs", &at<&Deck::run, &Run::epochs>, "0", "epochs", from(0),
                    "Length of the run in passes over the training data, rounded to whole steps."})),
      path(PathKind::from_deck,
           example(R"(["data/*.bin"])",
                   {"data.train", &at<&Deck::data, &Data::train>, "", "", any(),
                    "Files with training tokens, or glob patterns (*, ?, [...]); relative to the deck. They "
                    "are read in "
                    "the order of their paths. On resume, folders may change, file names may not."})),
      path(PathKind::from_deck, {"data.validation", &at<&Deck::data, &Data::validation>, "[]", "", any(),
                                 "Files or glob patterns with validation tokens. Empty: the end of the "
                                 "training tokens is held out."}),
      numeric({"data.validation_fraction", &at<&Deck::data, &Data::validation_fraction>, "0.01", "",
               below_one(),
               "Part of the training tokens held out for validation, at least one sequence, where "
               "data.validation is "
               "empty. 0: nothing is held out."}),
      numeric({"data.format", &at<&Deck::data, &Data::format>, R"("auto")", "",
               one_of({"auto", "text", "bin-uint16", "bin-uint32", "hdf5"}),
               "Layout of the files. auto: .h5 and .hdf5 files are HDF5 with a dataset named tokens; .bin "
               "files hold raw "
               "tokens (nanoGPT) or tokens behind a header of 1024 bytes (llm.c); all others are text, read "
               "as bytes "
               "0 to 255 with token 256 between files."}),
      numeric({"data.sequence", &at<&Deck::data, &Data::sequence>, "512", "tokens", between(1, 1 << 24),
               "Length of a training sequence."}),
  };
}

std::vector<Field> model() {
  return {
      numeric({"model.family", &at<&Deck::model, &Model::family>, R"("llama")", "", one_of({"llama"}),
               "Architecture. llama: RMSNorm, RoPE, grouped-query attention, SwiGLU."}),
      free(
          {"model.preset", &at<&Deck::model, &Model::preset>, R"("custom")", "", one_of(model_preset_names()),
           "Named model whose dims are taken; keys given below win over it. custom: the keys below and their "
           "defaults. Names and meanings are those of the Hugging Face config of Llama models."}),
      numeric({"model.hidden_size", &at<&Deck::model, &Model::hidden_size>, "512", "", between(1, 1 << 24),
               "Width of the residual stream."}),
      numeric({"model.intermediate_size", &at<&Deck::model, &Model::intermediate_size>, "1408", "",
               between(1, 1 << 24), "Width of the feed-forward layer."}),
      numeric({"model.num_hidden_layers", &at<&Deck::model, &Model::num_hidden_layers>, "8", "",
               between(1, 1e4), "Number of transformer blocks."}),
      numeric({"model.num_attention_heads", &at<&Deck::model, &Model::num_attention_heads>, "8", "",
               between(1, 1 << 16), "Number of query heads."}),
      numeric({"model.num_key_value_heads", &at<&Deck::model, &Model::num_key_value_heads>, "0", "",
               between(0, 1 << 16), "Number of key and value heads. 0: as many as query heads."}),
      numeric({"model.head_dim", &at<&Deck::model, &Model::head_dim>, "0", "", between(0, 1 << 16),
               "Width of one head. 0: hidden_size / num_attention_heads."}),
      numeric(
          {"model.vocab_size", &at<&Deck::model, &Model::vocab_size>, "0", "tokens", between(0, 1 << 30),
           "Number of token ids. 0: what the data say (257 for text, 50257 and 128256 for llm.c's files)."}),
      numeric({"model.rms_norm_eps", &at<&Deck::model, &Model::rms_norm_eps>, "1e-5", "", above(0),
               "Added to the mean square in RMS normalisation."}),
      numeric({"model.rope_theta", &at<&Deck::model, &Model::rope_theta>, "10000", "", above(0),
               "Base of the rotary embedding's wavelengths."}),
      numeric({"model.rope_scaling", &at<&Deck::model, &Model::rope_scaling>, R"("none")", "",
               one_of({"none", "llama3"}),
               "How long wavelengths are stretched; llama3 uses the four keys below."}),
      numeric({"model.rope_factor", &at<&Deck::model, &Model::rope_factor>, "8", "", from(1),
               "Stretch of the longest wavelengths."}),
      numeric({"model.rope_low_freq_factor", &at<&Deck::model, &Model::rope_low_freq_factor>, "1", "",
               above(0), "Wavelengths above rope_original_max_position / this are stretched in full."}),
      numeric({"model.rope_high_freq_factor", &at<&Deck::model, &Model::rope_high_freq_factor>, "4", "",
               above(0), "Wavelengths below rope_original_max_position / this are left alone."}),
      numeric({"model.rope_original_max_position", &at<&Deck::model, &Model::rope_original_max_position>,
               "8192", "tokens", from(1), "Context length the unstretched embedding was trained with."}),
      numeric({"model.initializer_range", &at<&Deck::model, &Model::initializer_range>, "0.02", "", from(0),
               "Standard deviation of the initial weights."}),
      numeric({"model.tie_word_embeddings", &at<&Deck::model, &Model::tie_word_embeddings>, "false", "",
               any(), "The head uses the embedding's weight."}),
      numeric({"model.attention_bias", &at<&Deck::model, &Model::attention_bias>, "false", "", any(),
               "Attention projections have biases."}),
  };
}

std::vector<Field> parallel() {
  return {
      numeric(
          example("64", {"batch.global", &at<&Deck::batch, &Batch::global>, "", "sequences", between(1, 1e9),
                         "Sequences per optimizer step over all ranks. A multiple of batch.micro x "
                         "data-parallel ranks; the quotient is the number of micro-batches accumulated."})),
      free(numeric({"batch.micro", &at<&Deck::batch, &Batch::micro>, "1", "sequences", between(1, 1e6),
                    "Sequences per rank that go through the model at once."})),
      free(numeric({"mesh.pipeline", &at<&Deck::mesh, &Mesh::pipeline>, "1", "ranks", degree(),
                    "Pipeline stages. One degree of the mesh may be -1: what is left of the ranks."})),
      free(numeric({"mesh.replicate", &at<&Deck::mesh, &Mesh::replicate>, "1", "ranks", degree(),
                    "Groups of ranks that hold whole copies of the sharded states."})),
      free(numeric({"mesh.shard", &at<&Deck::mesh, &Mesh::shard>, "-1", "ranks", degree(),
                    "Ranks over which the states are sharded; each has its own part of the batch."})),
      free(numeric({"mesh.context", &at<&Deck::mesh, &Mesh::context>, "1", "ranks", degree(),
                    "Ranks that share one sequence."})),
      free(numeric({"mesh.tensor", &at<&Deck::mesh, &Mesh::tensor>, "1", "ranks", degree(),
                    "Ranks that share each matrix product."})),
      free({"sharding.strategy", &at<&Deck::sharding, &Sharding::strategy>, R"("FULL_SHARD")", "",
            strategies(),
            "Which states are sharded over mesh.shard. NO_SHARD (zero0, ddp): none. zero1: optimizer state. "
            "zero2: "
            "gradients too; parameters stay whole. SHARD_GRAD_OP: as zero2, and parameters are sharded "
            "between steps. "
            "FULL_SHARD (zero3): parameters too, gathered unit by unit. HYBRID_SHARD: FULL_SHARD within a "
            "node, copies "
            "across nodes, unless the mesh says otherwise."}),
      free(
          numeric({"sharding.gradient_accumulation", &at<&Deck::sharding, &Sharding::gradient_accumulation>,
                   R"("auto")", "", one_of({"auto", "reduce", "no_sync"}),
                   "reduce: gradients are reduced after every micro-batch and accumulated as shards. "
                   "no_sync: they are "
                   "accumulated whole and reduced once per step. auto: the one that the strategy implies."})),
      free({"sharding.prefetch", &at<&Deck::sharding, &Sharding::prefetch>, "1", "actions", between(0, 8),
            "How many actions ahead (a unit's forward, recompute or backward) parameters are gathered."}),
      free({"precision.preset", &at<&Deck::precision, &Precision::preset>, R"("bf16")", "",
            one_of(precision_preset_names()),
            "Sets the five dtypes below; keys given below win over it. bf16: parameters in bf16, the rest in "
            "fp32. "
            "fp64 is meant for numerical tests, and for all five together only."}),
      numeric({"precision.parameters", &at<&Deck::precision, &Precision::parameters>, R"("bf16")", "",
               dtypes(), "Parameters and activations in forward and backward."}),
      numeric({"precision.gradients", &at<&Deck::precision, &Precision::gradients>, R"("fp32")", "", dtypes(),
               "Accumulated gradients."}),
      numeric({"precision.reduce", &at<&Deck::precision, &Precision::reduce>, R"("fp32")", "", dtypes(),
               "Gradients while they travel between ranks; sums are always formed in fp32 or wider."}),
      numeric({"precision.master", &at<&Deck::precision, &Precision::master>, R"("fp32")", "", dtypes(),
               "The parameters that the optimizer steps."}),
      numeric({"precision.moments", &at<&Deck::precision, &Precision::moments>, R"("fp32")", "", dtypes(),
               "The optimizer's moments."}),
      free({"recompute.mode", &at<&Deck::recompute, &Recompute::mode>, R"("none")", "",
            one_of({"none", "full"}),
            "full: of each transformer block only the input is kept, and its forward is run again before its "
            "backward."}),
  };
}

std::vector<Field> optimization() {
  return {
      numeric({"optimizer.name", &at<&Deck::optimizer, &Optimizer::name>, R"("adamw")", "", one_of({"adamw"}),
               "Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."}),
      numeric({"optimizer.lr", &at<&Deck::optimizer, &Optimizer::lr>, "3e-4", "", above(0),
               "Peak learning rate."}),
      numeric({"optimizer.betas", &betas, "[0.9, 0.95]", "", below_one(),
               "Decay of the running means of the gradient and of its square."}),
      numeric({"optimizer.eps", &at<&Deck::optimizer, &Optimizer::eps>, "1e-8", "", above(0),
               "Added to the root of the second moment."}),
      numeric({"optimizer.weight_decay", &at<&Deck::optimizer, &Optimizer::weight_decay>, "0.1", "", from(0),
               "Decay of matrices and embeddings; norms and biases are not decayed."}),
      numeric({"optimizer.max_norm", &at<&Deck::optimizer, &Optimizer::max_norm>, "1.0", "", from(0),
               "Bound on the global L2 norm of the gradient. 0: no clipping."}),
      numeric({"schedule.name", &at<&Deck::schedule, &Schedule::name>, R"("cosine")", "",
               one_of({"constant", "linear", "cosine", "wsd"}),
               "Course of the learning rate after the warmup. linear and cosine fall until the end of the "
               "run; wsd "
               "stays at the peak and falls linearly over the last schedule.decay steps."}),
      numeric({"schedule.warmup", &at<&Deck::schedule, &Schedule::warmup>, "0", "steps", from(0),
               "The learning rate rises linearly over this many steps."}),
      numeric({"schedule.min_lr_ratio", &at<&Deck::schedule, &Schedule::min_lr_ratio>, "0.1", "",
               between(0, 1), "Final learning rate over optimizer.lr."}),
      numeric({"schedule.decay", &at<&Deck::schedule, &Schedule::decay>, "0", "steps", from(0),
               "Length of wsd's final decay; other schedules do not use it."}),
  };
}

std::vector<Field> operation() {
  return {
      free(path(PathKind::from_deck,
                {"checkpoint.folder", &at<&Deck::checkpoint, &Checkpoint::folder>, R"("")", "", any(),
                 "Folder of the checkpoints; relative to the deck. Empty: checkpoints in run.output."})),
      free({"checkpoint.interval", &at<&Deck::checkpoint, &Checkpoint::interval>, "0", "steps", from(-1),
            "Steps between checkpoints. 0: only at the end. -1: never, not even at the end."}),
      free({"checkpoint.keep", &at<&Deck::checkpoint, &Checkpoint::keep>, "2", "checkpoints", from(0),
            "How many of the latest checkpoints are kept. 0: all."}),
      free({"checkpoint.files", &at<&Deck::checkpoint, &Checkpoint::files>, "0", "files", between(0, 256),
            "Shard files per checkpoint. 0: one per node."}),
      free(path(
          PathKind::from_deck,
          {"checkpoint.resume", &at<&Deck::checkpoint, &Checkpoint::resume>, R"("auto")", "", any(),
           "auto: go on from the latest checkpoint in checkpoint.folder, if there is one. none: start anew. "
           "Otherwise the folder of one checkpoint; relative to the deck."})),
      free({"evaluation.interval", &at<&Deck::evaluation, &Evaluation::interval>, "0", "steps", from(0),
            "Steps between evaluations on the validation data. 0: off."}),
      free({"evaluation.batches", &at<&Deck::evaluation, &Evaluation::batches>, "8", "micro-batches per rank",
            from(1), "Length of an evaluation."}),
      free({"metrics.interval", &at<&Deck::metrics, &Metrics::interval>, "1", "steps", from(1),
            "Steps between printed lines."}),
      free({"watchdog.timeout", &at<&Deck::watchdog, &Watchdog::timeout>, "600", "seconds", from(0),
            "Time without a finished step after which a rank reports where it stands and aborts the job. 0: "
            "off."}),
      free({"cluster.peak_tflops", &at<&Deck::cluster, &Cluster::peak_tflops>, "0", "TFLOP/s per rank",
            from(0),
            "Dense peak at the dtype of the parameters, for the utilisation printed. 0: unknown, none is "
            "printed."}),
      free({"cluster.ranks_per_node", &at<&Deck::cluster, &Cluster::ranks_per_node>, "0", "ranks",
            between(0, 1 << 16), "Ranks on one node. 0: as launched."}),
      free({"debug.poison", &at<&Deck::debug, &Debug::poison>, "false", "", any(),
            "Fill memory with NaN when it is released, so that a use after release shows."}),
  };
}

std::vector<Field> all_fields() {
  std::vector<Field> all;
  for (auto part : {run_and_data(), model(), parallel(), optimization(), operation()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

struct SectionRow {
  const char *name, *doc;
};
constexpr std::array section_rows{
    SectionRow{"run", "Length, seed and output of the run."},
    SectionRow{"data", "Token files."},
    SectionRow{"model", "The transformer."},
    SectionRow{"batch", "Batch sizes, in sequences."},
    SectionRow{"mesh", "Degrees of the five mesh axes; their product is the number of ranks."},
    SectionRow{"sharding", "What is sharded, and when it is gathered."},
    SectionRow{"precision", "Element types: fp32, bf16, or fp64 for all five."},
    SectionRow{"recompute", "Trading computation for memory."},
    SectionRow{"optimizer", "The optimizer and the clipping of gradients."},
    SectionRow{"schedule", "The learning rate over the run."},
    SectionRow{"checkpoint", "Saving and resuming."},
    SectionRow{"evaluation", "Loss on the validation data."},
    SectionRow{"metrics", "What is printed."},
    SectionRow{"watchdog", "Noticing a job that hangs."},
    SectionRow{"cluster", "What cannot be asked of the machine."},
    SectionRow{"debug", "Finding mistakes of ztrain itself."},
};

std::string range_text(const Legal& legal) {
  const bool low = std::isfinite(legal.least), high = std::isfinite(legal.most);
  if (low && high)
    return fmt::format(" from {} to {}{}", legal.least, legal.open_most ? "below " : "", legal.most);
  if (low)
    return legal.open_least ? fmt::format(" above {}", legal.least)
                            : fmt::format(", {} or more", legal.least);
  return "";
}

}  // namespace

const std::vector<Field>& fields() {
  static const std::vector<Field> table = all_fields();
  return table;
}

const Field* find_field(std::string_view key) {
  for (const auto& field : fields()) {
    if (field.key == key) return &field;
  }
  return nullptr;
}

std::vector<std::string> field_keys() {
  std::vector<std::string> keys;
  for (const auto& field : fields()) keys.push_back(field.key);
  return keys;
}

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  for (const auto& row : section_rows) names.emplace_back(row.name);
  return names;
}

std::string section_doc(std::string_view section) {
  for (const auto& row : section_rows) {
    if (section == row.name) return row.doc;
  }
  return "";
}

std::string type_name(const Field& field) {
  constexpr std::array names{"string", "integer",         "number",     "boolean",
                             "dtype",  "list of strings", "two numbers"};
  static_assert(names.size() == std::variant_size_v<Access>);
  return names[field.access.index()];
}

std::string legal_text(const Field& field) {
  const Legal& legal = field.legal;
  if (!legal.choices.empty()) {
    std::vector<std::string> words = legal.choices;
    for (const auto& [spelling, choice] : legal.aliases)
      words.push_back(fmt::format("{} (= {})", spelling, choice));
    return fmt::format("one of {}", fmt::join(words, ", "));
  }
  constexpr std::array things{"a string", "an integer",        "a number",   "true or false",
                              "a dtype",  "a list of strings", "two numbers"};
  static_assert(things.size() == std::variant_size_v<Access>);
  return fmt::format("{}{}{}", things[field.access.index()], range_text(legal),
                     legal.minus_one ? ", or -1" : "");
}

}  // namespace ztrain::config
