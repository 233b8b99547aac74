#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "config/validate/validate.hpp"
#include "plan/report.hpp"

namespace ztrain::plan {
namespace {

using Json = nlohmann::ordered_json;
using program::Tier;

/// Those that are not zero.
Json by_action(const ByAction& seconds) {
  Json json = Json::object();
  for (std::size_t i = 0; i < seconds.size(); ++i)
    if (seconds[i] != 0) json[std::string(name_of(static_cast<program::ActionKind>(i)))] = seconds[i];
  return json;
}

Json busy_json(const Simulation& s) {
  Json json = Json::object();
  for (std::size_t i = 0; i < s.busy.size(); ++i)
    if (Json actions = by_action(s.busy[i]); !actions.empty())
      json[std::string(name_of(static_cast<program::Stream>(i)))] = std::move(actions);
  return json;
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
          {"latency", m.latency}};
}

Json model_json(const Cost& c) {
  return {{"preset", c.deck.model.preset},    {"parameters", c.parameters},
          {"trained_parameters", c.trained},  {"vocabulary", c.deck.model.vocab_size},
          {"sequence", c.deck.data.sequence}, {"flops_per_token", c.flops_per_token}};
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
  Json json;
  for (int i = 0; i < axis_count; ++i) {
    const auto axis = static_cast<Axis>(i);
    json[std::string(name_of(axis))] = mesh[axis];
  }
  return json;
}

Json tier_json(const ProgramMemory& p, std::size_t tier) {
  Json categories = Json::object();
  for (const MemoryRow& row : p.rows[tier])
    categories[row.category] = {{"kept", row.persistent_bytes}, {"peak", row.peak_bytes}};
  return {{"persistent", p.tiers[tier].persistent_bytes},
          {"transient", p.tiers[tier].transient_bytes},
          {"live", p.tiers[tier].live_bytes},
          {"categories", std::move(categories)}};
}

Json json_of(const RankMemory& m) {
  Json json{{"rank", m.rank}};
  for (int t = 0; t < program::tier_count; ++t) {
    const auto tier = static_cast<Tier>(t);
    json["total"][std::string(name_of(tier))] = m.total(tier);
  }
  for (const ProgramMemory& p : m.programs)
    for (std::size_t t = 0; t < program::tier_count; ++t)
      json["programs"][p.name][std::string(name_of(static_cast<Tier>(t)))] = tier_json(p, t);
  return json;
}

Json traffic_json(const std::vector<TrafficRow>& rows) {
  Json list = Json::array();
  for (const TrafficRow& row : rows) {
    Json sizes = Json::array();
    for (const auto& [size, count] : row.sizes) sizes.push_back({{"bytes", size}, {"calls", count}});
    list.push_back({{"axes", to_string(row.axes)},
                    {"collective", std::string(name_of(row.kind))},
                    {"members", row.members},
                    {"calls", row.messages},
                    {"bytes", row.bytes},
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

Json time_json(const Cost& c) {
  const Simulation& s = c.step;
  return {{"step_seconds", s.seconds},
          {"tokens_per_second", c.tokens_per_second()},
          {"mfu", c.mfu()},
          {"flops_per_rank", s.flops},
          {"busy_seconds", busy_json(s)},
          {"exposed_seconds", s.exposed},
          {"exposed_by_seconds", by_action(s.exposed_by)},
          {"critical_path_seconds", by_action(s.critical_by)},
          {"seconds_without_reuse", c.seconds_without_reuse},
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
          {"node_snapshots", snapshots_on_node(c)}};
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

Json json_of(const Fixes& f) {
  Json list = Json::array();
  for (const Fix& fix : f.best) {
    Json json = summary(fix.cost, fix.overrides());
    json["effect"] = std::string(name_of(fix.effect));
    list.push_back(std::move(json));
  }
  return {{"tried", f.tried},
          {"refused", f.refused},
          {"complete", f.ended == Ended::not_early},
          {"ended_by", std::string(name_of(f.ended))},
          {"least_ranks", f.least_ranks ? Json(f.least_ranks->ranks) : Json()},
          {"least_ranks_overrides", f.least_ranks ? f.least_ranks->overrides : std::vector<std::string>()},
          {"best", list}};
}

Json json_of(const Search& s) {
  Json list = Json::array();
  for (const Setting& x : s.best) {
    Json json = summary(x.cost, x.overrides);
    json["effect"] = std::string(name_of(x.effect));
    list.push_back(std::move(json));
  }
  return {{"tried", s.tried},
          {"complete", s.ended == Ended::not_early},
          {"ended_by", std::string(name_of(s.ended))},
          {"least_ranks", s.least_ranks ? Json(s.least_ranks->ranks) : Json()},
          {"least_ranks_overrides", s.least_overrides()},
          {"best", std::move(list)}};
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
            {"traffic", traffic_json(c.traffic)},
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
  for (const RankMemory& m : c.memory) json["memory"].push_back(json_of(m));
  if (plan.fixes) json["fixes"] = json_of(*plan.fixes);
  if (plan.search) json["search"] = json_of(*plan.search);
  return json;
}

}  // namespace ztrain::plan
