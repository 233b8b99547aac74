#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/shape.hpp"
#include "config/validate/validate.hpp"
#include "plan/job_time.hpp"
#include "plan/report/report.hpp"

namespace ztrain::plan {
namespace {

using Json = nlohmann::ordered_json;
using program::Tier;

/// An object of what value(i) is for each of an enumeration, by name; without those that are null.
template <class Enum, class Value>
Json by_name(int count, const Value& value) {
  Json json = Json::object();
  for (int i = 0; i < count; ++i)
    if (Json of_one = value(i); !of_one.is_null())
      json[std::string(name_of(static_cast<Enum>(i)))] = std::move(of_one);
  return json;
}

/// Those that are not zero.
Json by_action(const ByAction& seconds) {
  return by_name<program::ActionKind>(
      program::action_kind_count, [&](int i) { return seconds[at(i)] != 0 ? Json(seconds[at(i)]) : Json(); });
}

Json busy_json(const Simulation& s) {
  return by_name<program::Stream>(program::stream_count, [&](int i) {
    Json actions = by_action(s.busy[at(i)]);
    return actions.empty() ? Json() : actions;
  });
}

Json json_of(const Machine& m) {
  return {{"ranks_per_node", m.ranks_per_node},
          {"device_memory", m.device_memory},
          {"host_memory", m.host_memory},
          {"outside_memory", m.outside_memory},
          {"peak_flops", m.peak_flops},
          {"peak_assumed", m.peak_assumed},
          {"compute_efficiency", m.compute_efficiency},
          {"memory_bandwidth", m.memory_bandwidth},
          {"memory_efficiency", m.memory_efficiency},
          {"host_bandwidth", m.host_bandwidth},
          {"host_memory_bandwidth", m.host_memory_bandwidth},
          {"nvme_bandwidth", m.nvme_bandwidth},
          {"intra_node_bandwidth", m.intra_node_bandwidth},
          {"inter_node_bandwidth", m.inter_node_bandwidth},
          {"latency", m.latency},
          {"launch", m.launch},
          {"multiprocessors", m.multiprocessors},
          {"computing_share", m.computing_share},
          {"sources", m.rates.sources}};
}

Json model_json(const Cost& c) {
  return {{"preset", c.deck.model.preset},         {"parameters", c.parameters},
          {"active_parameters", c.active},         {"trained_parameters", c.trained},
          {"vocabulary", c.deck.model.vocab_size}, {"sequence", c.deck.data.sequence},
          {"flops_per_token", c.flops_per_token}};
}

Json batch_json(const Cost& c) {
  return {{"tokens_per_step", config::tokens_per_step(c.deck)},
          {"global", c.deck.batch.global},
          {"micro", c.deck.batch.micro},
          {"data_parallel_ranks", config::data_parallel_degree(c.deck)},
          {"accumulation", config::accumulation_steps(c.deck)},
          {"flops_per_step", c.flops_per_token * c.tokens_per_step()}};
}

Json mesh_json(const MeshShape& mesh) {
  return by_name<Axis>(axis_count, [&](int i) { return mesh[static_cast<Axis>(i)]; });
}

Json tier_json(const ProgramMemory& p, int tier) {
  const program::TierPlan& plan = p.tiers[at(tier)];
  Json categories = Json::object();
  for (const MemoryRow& row : p.rows[at(tier)])
    categories[row.category] = {{"kept", row.persistent_bytes}, {"peak", row.peak_bytes}};
  return {{"persistent", plan.persistent_bytes},
          {"transient", plan.transient_bytes},
          {"live", plan.live_bytes},
          {"categories", std::move(categories)}};
}

Json json_of(const RankMemory& m) {
  Json json{
      {"rank", m.rank},
      {"total", by_name<Tier>(program::tier_count, [&](int t) { return m.total(static_cast<Tier>(t)); })}};
  for (const ProgramMemory& p : m.programs)
    json["programs"][p.name] = by_name<Tier>(program::tier_count, [&](int t) { return tier_json(p, t); });
  return json;
}

Json traffic_json(const std::vector<TrafficRow>& rows, const MeshShape& mesh) {
  Json list = Json::array();
  for (const TrafficRow& row : rows) {
    Json sizes = Json::array();
    for (const auto& [size, count] : row.sizes) sizes.push_back({{"bytes", size}, {"calls", count}});
    list.push_back({{"axes", to_string(row.axes, mesh)},
                    {"collective", std::string(name_of(row.kind))},
                    {"members", row.members},
                    {"calls", row.messages},
                    {"bytes", row.bytes},
                    {"bytes_out_of_node", row.out_of_node},
                    {"sizes", std::move(sizes)}});
  }
  return {{"bytes", total_bytes(rows)}, {"calls", total_messages(rows)}, {"rows", std::move(list)}};
}

Json tiers_json(const std::vector<TierTraffic>& rows) {
  Json list = Json::array();
  for (const TierTraffic& row : rows)
    list.push_back({{"from", std::string(name_of(row.from))},
                    {"to", std::string(name_of(row.to))},
                    {"copies", row.copies},
                    {"bytes", row.bytes}});
  return list;
}

/// Of a pipeline: what each rank of it does when, for tools/plot_schedule.py.
Json stages_json(const Cost& c) {
  Json list = Json::array();
  for (const StageCost& stage : c.stages) {
    list.push_back({{"rank", stage.rank},
                    {"blocks", stage.blocks},
                    {"seconds", stage.step.seconds},
                    {"waiting_seconds", stage.waiting},
                    {"work", work_json(stage.step.work)}});
  }
  return {{"schedule", c.deck.pipeline.schedule}, {"bubble", c.bubble()}, {"ranks", std::move(list)}};
}

/// Returns the times of the job; null if its length or its machine is not known.
Json job_json(const Cost& c) {
  if (!knows_its_time(c)) return {};
  const JobTime t = job_time(c);
  return {{"steps_seconds", t.steps},
          {"evaluations_seconds", t.evaluations},
          {"saves_seconds", t.saves},
          {"most_joules", t.energy > 0 ? Json(t.energy) : Json()}};
}

Json time_json(const Cost& c) {
  const Simulation& s = c.step;
  return {{"step_seconds", s.seconds},
          {"tokens_per_second", c.tokens_per_second()},
          {"mfu", c.mfu()},
          {"flops_per_rank", s.flops},
          {"busy_seconds", busy_json(s)},
          {"exposed_seconds", s.exposed},
          {"slowest_rank_seconds", c.slowest},
          {"exposed_by_seconds", by_action(s.exposed_by)},
          {"critical_path_seconds", by_action(s.critical_by)},
          {"seconds_without_reuse", c.seconds_without_reuse},
          {"job", job_json(c)},
          {"pipeline", c.stages.empty() ? Json() : stages_json(c)},
          {"extrapolated_from_micro_batches", c.extrapolated_from}};
}

Json verdict_json(const Cost& c) {
  const Verdict v = verdict_of(c);
  return {{"fits", v.fits()},
          {"device_needed", v.device_needed},
          {"device_limit", v.device_limit},
          {"node_needed", v.node_needed},
          {"node_limit", v.node_limit},
          {"node_checkpoints", checkpoints_on_node(c)},
          {"node_snapshots", snapshots_on_node(c)},
          {"checkpoint_bytes", c.checkpoint_bytes}};
}

/// What a fix or a setting comes to.
Json summary(const Cost& c, const std::vector<std::string>& overrides) {
  Json json = verdict_json(c);
  json["overrides"] = overrides;
  json["step_seconds"] = c.step.seconds;
  json["tokens_per_second"] = c.tokens_per_second();
  json["mfu"] = c.mfu();
  return json;
}

/// Fixes, or settings.
template <class Tried>
Json best_json(const std::vector<Tried>& best) {
  Json list = Json::array();
  for (const Tried& tried : best) {
    list.push_back(summary(tried.cost, tried.overrides));
    list.back()["effect"] = std::string(name_of(tried.effect));
  }
  return list;
}

Json json_of(const Fixes& f) {
  return {{"tried", f.tried},
          {"refused", f.refused},
          {"complete", f.ended == Ended::not_early},
          {"ended_by", std::string(name_of(f.ended))},
          {"least_ranks", f.least_ranks ? Json(f.least_ranks->ranks) : Json()},
          {"least_ranks_overrides", f.least_ranks ? f.least_ranks->overrides : std::vector<std::string>()},
          {"best", best_json(f.best)}};
}

Json json_of(const Search& s) {
  return {{"tried", s.tried},
          {"complete", s.ended == Ended::not_early},
          {"ended_by", std::string(name_of(s.ended))},
          {"least_ranks", s.least_ranks ? Json(s.least_ranks->ranks) : Json()},
          {"least_ranks_overrides", s.least_overrides()},
          {"best", best_json(s.best)}};
}

std::string_view suffix_of(program::Half half) {
  using enum program::Half;
  return half == inputs ? "_inputs" : half == weights ? "_weights" : "";
}

}  // namespace

Json work_json(const program::WorkList& work, double from) {
  Json list = Json::array();
  for (const program::Work& w : work.all())
    list.push_back({{"does", fmt::format("{}{}", name_of(w.action.kind), suffix_of(w.action.half))},
                    {"micro_batch", w.action.micro},
                    {"block", w.action.part},
                    {"begin", w.begin - from},
                    {"end", w.end - from}});
  return list;
}

Json report_json(const Plan& plan) {
  const Cost& c = plan.cost;
  Json json{{"deck", plan.question.deck},
            {"overrides", plan.question.overrides},
            {"ranks", c.ranks},
            {"machine", json_of(c.machine)},
            {"model", model_json(c)},
            {"batch", batch_json(c)},
            {"mesh", mesh_json(c.mesh)},
            {"strategy", c.deck.sharding.strategy},
            {"ops", c.ops},
            {"memory", Json::array()},
            {"classic_states", zero_paper_of(c)},
            {"traffic", traffic_json(c.traffic, c.mesh)},
            {"tier_traffic", tiers_json(c.tier_traffic)},
            {"time", time_json(c)},
            {"verdict", verdict_json(c)},
            {"notes", plan.notes}};
  for (const Cost& s : plan.strategies)
    json["strategies"].push_back(
        {{"strategy", s.deck.sharding.strategy},
         {"classic_states", zero_paper_of(s)},
         {"persistent", s.largest(program::Tier::device).persistent(program::Tier::device)},
         {"total", s.largest(program::Tier::device).total(program::Tier::device)},
         {"seconds", s.step.seconds}});
  if (const auto& other = plan.other_overlap)
    json["other_overlap"] = {{"overlap", other->deck.tensor.overlap},
                             {"seconds", other->step.seconds},
                             {"exposed", other->step.exposed},
                             {"total", other->largest(program::Tier::device).total(program::Tier::device)}};
  if (!plan.strategies.empty()) json["other_sums"] = Json::array();
  for (const OtherSums& o : plan.other_sums)
    json["other_sums"].push_back({{"overrides", o.change.overrides},
                                  {"effect", std::string(name_of(o.change.effect))},
                                  {"seconds", o.cost.step.seconds},
                                  {"device_needed", verdict_of(o.cost).device_needed}});
  for (const RankMemory& m : c.memory) json["memory"].push_back(json_of(m));
  if (plan.fixes) json["fixes"] = json_of(*plan.fixes);
  if (plan.search) json["search"] = json_of(*plan.search);
  return json;
}

}  // namespace ztrain::plan
