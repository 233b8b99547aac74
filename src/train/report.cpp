#include "train/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/preference_loss.hpp"
#include "base/text.hpp"
#include "config/hf/hf_config.hpp"
#include "config/layers.hpp"
#include "config/text/print.hpp"
#include "config/validate/validate.hpp"
#include "data/datasets.hpp"
#include "job/memory_report.hpp"
#include "job/product_algorithms.hpp"
#include "kernel_interface/step_scalars.hpp"
#include "plan/cost.hpp"
#include "plan/memory.hpp"
#include "runtime/device/gpu_address.hpp"
#include "runtime/session/nics.hpp"
#include "runtime/session/transport.hpp"
#include "train/run.hpp"

namespace ztrain::train {
namespace {

using program::ActionKind;

std::string feed_forward_text(const config::Model& m) {
  const bool all = config::layers_with_experts(m) == m.num_hidden_layers;
  std::string text = all ? "" : fmt::format("feed-forward {}", m.intermediate_size);
  if (m.num_experts > 0)
    text += fmt::format("{}{} of {} experts of {}", all ? "" : ", ", m.num_experts_per_tok, m.num_experts,
                        m.moe_intermediate_size);
  if (const std::int64_t shared = config::shared_expert_width(m); shared > 0)
    text += fmt::format(", shared expert {}", shared);
  return text;
}

std::string model_line(const config::Deck& d, const program::Job& job) {
  return fmt::format("{}: {} parameters{} ({} layers, hidden {}, heads {}/{} of {}, {}, vocabulary {}{})",
                     d.model.preset, format_count(job.layout.parameter_count()),
                     plan::active_note(job.graph.active_parameters(), job.layout.parameter_count()),
                     d.model.num_hidden_layers, d.model.hidden_size, d.model.num_attention_heads,
                     d.model.num_key_value_heads, d.model.head_dim, feed_forward_text(d.model),
                     d.model.vocab_size,
                     is_reward_loss(d.preference.loss_type) ? ", head for rewards"
                     : d.model.tie_word_embeddings          ? ", tied head"
                                                            : "");
}

std::string batch_line(const config::Deck& d, const RunFacts& facts) {
  return fmt::format("{} tokens a step = {} micro x {} data-parallel ranks x {} accumulation x {} sequence",
                     facts.tokens_per_step, d.batch.micro, config::data_parallel_degree(d),
                     config::accumulation_steps(d), d.data.sequence);
}

/// Describes how often the data are seen. A mixture counts as the sum of its sequences.
std::string length_line(const config::Deck& d, const data::Datasets& data) {
  const std::int64_t rows = data::make_sampler(d, data).rows_per_epoch(),
                     steps = config::total_steps(d, rows);
  const double epochs =
      static_cast<double>(steps) * static_cast<double>(d.batch.global) / static_cast<double>(rows);
  return fmt::format("{}{} of {}: {:.3g} epochs of {}", d.evaluation.patience > 0 ? "at most " : "",
                     count_text(steps, "step"), count_text(d.batch.global, "sequence"), epochs,
                     count_text(rows, "sequence"));
}

std::string comm_line(const program::Program& p) {
  std::int64_t bytes = 0, messages = 0;
  for (program::OpId id = 0; id < std::ssize(p.ops); ++id)
    if (const program::Op& op = p.op(id); op.communicates())
      bytes += p.times(id) * op.comm.sent_bytes, messages += p.times(id);
  return fmt::format(
      "{} sent a step by each rank in {} collectives; {} ops, {:.3g} GFLOP of products and attention",
      format_bytes(bytes), messages, p.issues(), program::flops_of(p) / 1e9);
}

std::string job_line(const runtime::Session& session) {
  const std::string& job = session.slurm().job_id;
  return fmt::format("{} on {}{}", count_text(session.size(), "rank"), count_text(session.nodes(), "node"),
                     job.empty() ? "" : ", SLURM job " + job);
}

/// Returns a line if the data end texts, or turns of chats, with tokens that the model's files do not list.
std::string line_on_ends(const data::Tokenizer& tokenizer, const std::string& model_folder) {
  if (tokenizer.hash.empty() || tokenizer.ends.empty() || model_folder.empty()) return "";
  const std::vector<std::int32_t> known = config::hf_eos_if_valid(model_folder);
  std::vector<std::int32_t> added = tokenizer.ends;
  std::erase_if(added, [&](std::int32_t end) { return std::ranges::count(known, end) > 0; });
  if (known.empty() || added.empty()) return "";
  return fmt::format(
      "texts of the data end with token {}, and those of {} with {}: generation stops at each, and exports "
      "list all (eos_token_id)",
      fmt::join(added, ", "), model_folder, fmt::join(known, ", "));
}

}  // namespace

std::vector<std::pair<std::string, std::string>> lines_on_data(const config::Deck& deck,
                                                               const data::Datasets& data, bool looks) {
  auto lines = data::describe(deck, data);
  const auto add = [&](const char* what, const std::string& text) {
    if (!text.empty()) lines.emplace_back(what, text);
  };
  if (looks)
    for (const std::string& warning : data::warnings_on(deck)) add("data", warning);
  for (const std::string& warning : data.warnings) add("data", warning);
  if (looks) add("tokenizer", data::compare_with_model(data.tokenizer, deck.model.origin));
  if (looks) add("tokenizer", line_on_ends(data.tokenizer, deck.model.origin));
  if (data.teacher) add("teacher", data.teacher->describe());
  add("length", length_line(deck, data));
  add("context", config::context_note(deck));
  add("head", config::head_note(deck));
  add("left out", config::left_out_note(deck.model));
  return lines;
}

std::vector<engine::Note> notes_on_nodes(const runtime::Session& session, bool nccl) {
  std::vector<engine::Note> notes;
  const std::string root = "/", gpu = runtime::gpu_address();
  if (session.size() > 1 || !gpu.empty())
    for (const std::string& text : runtime::lines_by_node(
             runtime::texts_of_ranks(session, runtime::binding_text(root, runtime::cores_of_process(), gpu))))
      notes.push_back({"binding", text});
  if (session.nodes() < 2) return notes;
  const runtime::NetworkReport networks = runtime::report_networks(session, root, nccl);
  for (const std::string& text : networks.lines) notes.push_back({"network", text});
  for (const std::string& text : networks.warnings) notes.push_back({"network", text, true});
  return notes;
}

std::string banner(const runtime::Session& session, const config::Deck& d, const data::Datasets& data,
                   job::Worker& worker, const RunFacts& facts, const std::string& version,
                   const std::vector<engine::Note>& nodes) {
  const program::Job& job = worker.job();
  std::string text = fmt::format("ztrain {}, {}\n", version, job_line(session));
  const auto line = [&](const std::string& what, const std::string& value) {
    text += fmt::format("{:<10} {}\n", what, value);
  };
  line("deck", fmt::format("{} (hash {}, output {})", d.path, hex(config::deck_hash(d)), d.run.output));
  const bool asynchronous = worker.device().asynchronous();
  line("device", worker.device().name() +
                     (asynchronous ? "; communication: " + worker.mesh().describe()
                                   : ", " + job::processor_of(worker.device(), d.precision.parameters)));
  if (const std::string idle = config::device_note(d, plan::device_kind(build_target())); !idle.empty())
    line("device", "note: " + idle);
  for (const auto& notes : {worker.notes(), nodes})
    for (const engine::Note& note : notes) line(note.what, (note.warning ? "warning: " : "") + note.text);
  line("mesh", worker.mesh().shape().describe());
  const AxisSet across =
      axes_across_nodes(worker.mesh().shape(), [&](int rank) { return session.node_of(rank); });
  if (!across.empty()) line("nodes", note_on_nodes(across));
  line("strategy", config::strategy_summary(d));
  if (const std::string attention = config::attention_summary(d); !attention.empty())
    line("attention", attention);
  line("precision", config::precision_summary(d));
  line("optimizer", config::optimizer_summary(d));
  if (const std::string offload = config::offload_summary(d); !offload.empty()) line("offload", offload);
  line("model", model_line(d, job));
  const std::string trained =
      config::trained_summary(d, job.layout.trained_count(), job.layout.parameter_count());
  if (!trained.empty()) line("trained", trained);
  for (const auto& [what, value] : lines_on_data(d, data, session.rank() == 0)) line(what, value);
  line("batch", batch_line(d, facts));
  line("traffic", comm_line(job.train()));
  line("saves", config::saving_summary(
                    d, plan::checkpoint_bytes(d, job.layout.saved_count(), plan::trained_of(job.layout))));
  if (const auto end = runtime::mpirun_end(); end && d.checkpoint.interval >= 0)
    line("to stop", fmt::format("`pkill -USR1 {}` saves a checkpoint after the step (exit status 75); Ctrl-C "
                                "kills the ranks within {} s",
                                end->program, 2 * end->wait));
  return text + job::memory_table(job.train(), plan::memory_of(job.programs.all()));
}

std::string nothing_to_do(const config::Deck& deck, const job::Progress& progress, std::int64_t steps) {
  const config::Run& run = deck.run;
  if (progress.step < steps) {
    const std::string best = fmt::format("{}/step_{}", config::checkpoint_folder(deck), progress.best_step);
    std::error_code unknown;
    return fmt::format(
        "nothing to do: the run ended at step {} after {} without an improvement (evaluation.patience): "
        "raise that key, or set it to 0, to go on from there{}{}\n",
        progress.step, count_text(progress.evaluations_without_improvement, "evaluation"),
        progress.best_step >= 0 && std::filesystem::exists(best, unknown)
            ? fmt::format("; checkpoint.resume = \"{}\" goes on from the best", best)
            : "",
        deck.checkpoint.export_to.empty()
            ? ""
            : "; give another checkpoint.export with it, or remove that folder");
  }
  const char* const key = run.epochs > 0 ? "run.epochs" : run.tokens > 0 ? "run.tokens" : "run.steps";
  return fmt::format(
      "nothing to do: the checkpoint is at step {} and the run ends at step {} ({}): raise that key to go "
      "on\n",
      progress.step, steps, key);
}

telemetry::PairsRecord record_of(const PreferenceSums& means, const std::string& loss_type) {
  telemetry::PairsRecord record{means.chosen_reward, means.rejected_reward, means.margin(), means.accurate};
  if (!is_reward_loss(loss_type))
    record.chosen_logp = means.chosen_logp, record.rejected_logp = means.rejected_logp;
  if (loss_type == "kto") record.kl = means.kl;
  return record;
}

telemetry::StepRecord step_record(const Run& run, const engine::Timings& timings,
                                  const std::vector<runtime::Mesh::Sent>& sent) {
  const job::Worker& worker = run.worker;
  const RunFacts& facts = run.facts;
  const StepClock& clock = run.clock;
  const StepScalars& s = worker.scalars();
  telemetry::StepRecord r;
  r.step = run.progress.step;
  r.epoch = run.epochs();
  r.loss = s.valid_tokens > 0 ? s.loss : std::numeric_limits<double>::quiet_NaN();
  r.grad_norm = s.gradient_norm;
  r.lr = s.learning_rate;
  r.tokens = config::tokens_of(run.deck, run.progress.samples, run.progress.earlier);
  r.tokens_per_s = static_cast<double>(facts.tokens_per_step) / clock.total;
  const double flops = r.tokens_per_s * facts.flops_per_token / facts.ranks;
  r.mfu = facts.peak_flops > 0 ? flops / facts.peak_flops : std::numeric_limits<double>::quiet_NaN();
  r.seconds.data = clock.data;
  if (timings.by_kind) {
    r.seconds.forward = timings.of(ActionKind::forward);
    r.seconds.backward = timings.of(ActionKind::backward) + timings.of(ActionKind::recompute);
    r.seconds.optimizer = timings.of(ActionKind::optimize) + timings.of(ActionKind::norm);
    r.seconds.gather = timings.of(ActionKind::gather);
    r.seconds.reduce = timings.of(ActionKind::reduce);
  }
  if (facts.offload && timings.by_kind) {
    r.seconds.fetch = timings.of(ActionKind::fetch);
    r.seconds.evict = timings.of(ActionKind::evict);
    r.seconds.exposed_drives = timings.exposed_drives;
  }
  if (timings.by_communication) r.seconds.exposed_communication = timings.exposed_communication;
  if (facts.pipeline && timings.by_communication) r.seconds.exposed_messages = timings.exposed_messages;
  if (facts.units_ahead) r.units_rolled_back = s.unclipped_steps_stand() ? 0 : *facts.units_ahead;
  r.seconds.save = clock.save;
  if (facts.behind_training) r.seconds.save_wait = clock.save_wait;
  r.seconds.total = clock.total;
  for (const auto& [axes, bytes] : sent)
    r.bytes_sent.emplace_back(to_string(axes, worker.job().train().mesh), bytes);
  r.peak_bytes = worker.held().peak();
  if (const auto experts = worker.experts()) {
    const double tokens = std::max(s.valid_tokens, 1.0);
    r.experts = {experts->balance_sum / tokens, experts->z_sum / tokens, experts->load_max, experts->idle};
    if (worker.job().all_rows()) r.experts->rerun = worker.reran();
  }
  if (const auto pairs = worker.preference())
    r.pairs = record_of(pairs->means(), facts.loss_type), r.pairs->pairs = pairs->pairs;
  if (const auto sums = worker.distillation(); sums && s.valid_tokens > 0)
    r.distillation = {sums->entropy / s.valid_tokens, sums->divergence / s.valid_tokens};
  return r;
}

telemetry::StepLine step_line(const telemetry::StepRecord& r, const RunFacts& facts, double seconds_left) {
  telemetry::StepLine line;
  line.step = r.step;
  line.steps = facts.steps;
  line.loss = r.loss;
  line.grad_norm = r.grad_norm;
  line.lr = r.lr;
  line.memory_bytes = static_cast<double>(r.peak_bytes);
  line.memory_limit = facts.machine_bytes;
  line.tokens_per_s = r.tokens_per_s;
  line.tflops = r.tokens_per_s * facts.flops_per_token / facts.ranks / 1e12;
  line.mfu = r.mfu;
  line.data_share = r.seconds.data / r.seconds.total;
  line.exposed_share =
      r.seconds.exposed_communication.value_or(std::numeric_limits<double>::quiet_NaN()) / r.seconds.total;
  line.seconds_left = seconds_left;
  if (r.experts) line.balance_loss = r.experts->balance_loss, line.expert_load_max = r.experts->load_max;
  if (r.pairs) line.margin = r.pairs->margin, line.accuracy = r.pairs->accuracy;
  if (facts.pipeline)
    line.bubble_share =
        r.seconds.exposed_messages.value_or(std::numeric_limits<double>::quiet_NaN()) / r.seconds.total;
  if (facts.offload) {
    const auto share = [&](const std::optional<double>& seconds) {
      return seconds.value_or(0) / r.seconds.total;
    };
    line.copied_share = share(r.seconds.fetch) + share(r.seconds.evict);
    line.drives_share = share(r.seconds.exposed_drives);
  }
  return line;
}

}  // namespace ztrain::train
