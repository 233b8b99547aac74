#include "bench/calibrate/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.hpp"
#include "base/host_threads.hpp"
#include "bench/bench_worker.hpp"
#include "bench/calibrate/op_clock.hpp"
#include "kernel_interface/target.hpp"

namespace ztrain::bench {
namespace {

using plan::FittedRate;
using plan::KernelRate;
using plan::Measurement;
using plan::RatesOfNode;

/// Others may use cores that the ranks leave, and little more, while steps are timed that are to say what a
/// quiet machine does.
bool is_undisturbed(const DeckTimes& deck, int ranks, double cores) {
  return deck.by_others <= std::max(0.0, cores - ranks) + 0.1;
}

using Rows = std::map<std::string, std::vector<SameOps>>;

/// Returns the seconds that `count` gives for all ops of the rows.
template <class Seconds>
double sum_of(const Rows& rows, Seconds seconds) {
  double sum = 0;
  for (const auto& [name, ops] : rows)
    for (const SameOps& same : ops) sum += same.count * seconds(name, same.one);
  return sum;
}

double measured_in(const Rows& rows) {
  return sum_of(rows, [](const std::string&, const Measurement& one) { return one.seconds; });
}

double ops_in(const Rows& rows) {
  return sum_of(rows, [](const std::string&, const Measurement&) { return 1.0; });
}

FittedRate fitted_to(const std::vector<Measurement>& measured) {
  const KernelRate rate = plan::fit_kernel(measured);
  return {rate, static_cast<int>(measured.size()), plan::error_of(rate, measured)};
}

void fit_all(const std::vector<DeckTimes>& decks, RatesOfNode& node) {
  std::map<std::string, std::vector<Measurement>> measured;
  std::vector<Measurement> pooled;
  for (const DeckTimes& deck : decks)
    for (const Rows* rows : {&deck.kernels, &deck.collectives})
      for (const auto& [name, ops] : *rows)
        for (const SameOps& same : ops) {
          measured[name].push_back(same.one);
          if (rows == &deck.kernels) pooled.push_back(same.one);
        }
  for (const auto& [name, of_kernel] : measured) node.kernels[name] = fitted_to(of_kernel);
  node.kernels["other"] = fitted_to(pooled);
  // Either rank of a pair sends and receives as much in an all-gather; a message goes one way.
  if (const auto pair = node.kernels.find("all_gather"); pair != node.kernels.end()) {
    FittedRate send = pair->second;
    send.rate = {(send.rate.fixed + send.rate.per_hop) / 2, send.rate.per_byte / 2, 0, 0};
    node.kernels["send"] = send;
  }
}

/// Ranks that outnumber the cores take turns.
double turns(int ranks, double cores) {
  return std::max(1.0, ranks / cores);
}

/// Fits the time that steps take beside that of their parts.
void fit_steps(const std::vector<DeckTimes>& decks, double turns, RatesOfNode& node) {
  std::vector<std::vector<double>> rows;
  std::vector<double> wanted;
  for (const DeckTimes& deck : decks) {
    const double kernels = turns * measured_in(deck.kernels), collectives = measured_in(deck.collectives);
    rows.push_back({kernels / deck.step, collectives / deck.step,
                    (ops_in(deck.kernels) + ops_in(deck.collectives)) / deck.step});
    wanted.push_back(1 - (kernels + collectives) / deck.step);
  }
  if (rows.empty()) return;
  const std::vector<double> more = plan::least_squares(rows, wanted);
  node.more_of_kernels = more[0], node.more_of_collectives = more[1], node.each_op = more[2];
}

KernelRate times(const KernelRate& rate, double factor, double more) {
  return {rate.fixed * factor + more, rate.per_byte * factor, rate.per_flop * factor, rate.per_hop * factor};
}

plan::FitError error_of_steps(const std::vector<DeckTimes>& decks, double turns, const RatesOfNode& node) {
  std::vector<double> errors;
  const auto planned = [&](const std::string& name, const Measurement& one) {
    return node.kernels.at(name).rate.seconds(one.work);
  };
  for (const DeckTimes& deck : decks)
    errors.push_back(std::abs(
        (turns * sum_of(deck.kernels, planned) + sum_of(deck.collectives, planned)) / deck.step - 1));
  if (errors.empty()) return {};
  std::ranges::sort(errors);
  return {errors[errors.size() / 2], errors.back()};
}

double fastest_product(const std::vector<DeckTimes>& decks) {
  double rate = 0;
  for (const DeckTimes& deck : decks)
    for (const auto& [name, ops] : deck.kernels)
      for (const SameOps& same : ops)
        if (same.one.seconds > 0) rate = std::max(rate, same.one.work.flops / same.one.seconds);
  return rate;
}

std::vector<DeckTimes> time_decks(const runtime::Session& session, telemetry::Console& console,
                                  const CalibrationRequest& request) {
  std::vector<DeckTimes> times;
  telemetry::Phase phase(console, "calibrating");
  for (const CalibrationDeck& deck : calibration_decks(session.size(), request.quick)) {
    phase.at(fmt::format("{} of {}", deck.name, session.size()));
    times.push_back(time_deck(session, console, deck, request.steps));
  }
  return times;
}

/// With the first `ranks` ranks at work. Empty on the others.
std::vector<DeckTimes> time_with(const runtime::Session& session, telemetry::Console& console, int ranks,
                                 const CalibrationRequest& request) {
  return session.agree("calibrating", [&] {
    std::vector<DeckTimes> times;
    std::exception_ptr failure;
    try {
      if (const auto part = session.part(ranks)) try {
          times = time_decks(*part, console, request);
        } catch (const runtime::AgreedError&) {
          throw;
        } catch (const std::exception& error) {
          part->abort_all(error.what());  // the others wait for this rank
        }
    } catch (...) {
      failure = std::current_exception();
    }
    session.rest();
    if (failure) std::rethrow_exception(failure);
    return times;
  });
}

std::vector<int> numbers_of_ranks(int most) {
  std::vector<int> numbers;
  for (int n = 1; n < most; n *= 2) numbers.push_back(n);
  numbers.push_back(most);
  return numbers;
}

/// Cores that the ranks of this node may use, each those that the launcher gave it.
double cores_of(const runtime::Session& session) {
  const std::vector<int> of_ranks = runtime::of_all(session, usable_cores());
  return std::min(all_cores(), std::accumulate(of_ranks.begin(), of_ranks.end(), 0));
}

}  // namespace

plan::RatesOfNode rates_of(const std::vector<DeckTimes>& decks, int ranks, double cores) {
  RatesOfNode node;
  const double t = turns(ranks, cores);
  fit_all(decks, node);
  std::vector<DeckTimes> quiet;
  std::ranges::copy_if(decks, std::back_inserter(quiet),
                       [&](const auto& d) { return is_undisturbed(d, ranks, cores); });
  node.decks = static_cast<int>(decks.size());
  node.undisturbed = static_cast<int>(quiet.size());
  fit_steps(quiet, t, node);
  for (auto& [name, fitted] : node.kernels) {
    const bool collective =
        std::ranges::any_of(decks, [&](const auto& d) { return d.collectives.contains(name); });
    const double more = 1 + (collective ? node.more_of_collectives : node.more_of_kernels);
    fitted.rate = times(fitted.rate, more, collective ? node.each_op : node.each_op / t);
  }
  node.steps = error_of_steps(quiet, t, node);
  return node;
}

nlohmann::json times_json(const Calibrated& calibrated) {
  const auto rows_json = [](const Rows& rows) {
    auto all = nlohmann::json::array();
    for (const auto& [name, ops] : rows)
      for (const SameOps& same : ops)
        all.push_back({{"kernel", name},
                       {"count", same.count},
                       {"bytes", same.one.work.bytes},
                       {"flops", same.one.work.flops},
                       {"hops", same.one.work.hops},
                       {"seconds", same.one.seconds}});
    return all;
  };
  auto decks = nlohmann::json::array();
  for (const auto& [ranks, times] : calibrated.times)
    for (const DeckTimes& deck : times)
      decks.push_back({{"ranks", ranks},
                       {"deck", deck.name},
                       {"step_seconds", deck.step},
                       {"cores_of_others", deck.by_others},
                       {"kernels", rows_json(deck.kernels)},
                       {"collectives", rows_json(deck.collectives)}});
  return {{"processor", calibrated.rates.processor}, {"cores", calibrated.rates.cores}, {"decks", decks}};
}

Calibrated calibrate(const runtime::Session& session, telemetry::Console& console,
                     const CalibrationRequest& request) {
  session.agree("calibrating", [&] {
    REQUIRE(
        build_target() == Target::cpu,
        "--calibrate measures CPU ranks, and this build computes on GPUs: machine files of presets, or one "
        "with the rates of `ztrain bench DECK --kernels`, plan those");
    REQUIRE(session.nodes() == 1, "--calibrate measures one node, and these ranks are on {}",
            session.nodes());
  });
  Calibrated found;
  plan::Calibration& rates = found.rates;
  rates.processor = processor_name();
  rates.threads = threads_of_rank();
  rates.cores = cores_of(session);
  for (const int ranks : numbers_of_ranks(session.size())) {
    std::vector<DeckTimes> times = time_with(session, console, ranks, request);
    if (times.empty()) continue;
    rates.by_ranks[ranks] = rates_of(times, ranks, rates.cores);
    rates.peak_flops = std::max(rates.peak_flops, fastest_product(times));
    found.times[ranks] = std::move(times);
  }
  return found;
}

}  // namespace ztrain::bench
