#include "bench/calibrate/deck_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/clock.hpp"
#include "bench/bench_worker.hpp"
#include "bench/calibrate/op_clock.hpp"
#include "config/text/load.hpp"
#include "config/validate/validate.hpp"
#include "engine/kernel_table.hpp"
#include "kernels/communication/record.hpp"
#include "kernels/elementwise/record.hpp"
#include "plan/rates/op_time.hpp"
#include "plan/setup.hpp"

namespace ztrain::bench {
namespace {

constexpr int settling_steps = 2;
constexpr int batches = 12, launches = 2;  ///< of a collective
constexpr double least_seconds = 0.25;     ///< of steps as they are, where they are short
constexpr int most_steps = 40;

std::vector<double> mean_of_ranks(const runtime::Session& session, std::vector<double> values) {
  runtime::sum_over_ranks(session, values);
  for (double& v : values) v /= session.size();
  return values;
}

class TimedDeck {
 public:
  TimedDeck(const runtime::Session& session, telemetry::Console& console, const config::Deck& deck)
      : session_(session),
        worker_{session,
                job::compile_and_verify(session, console, plan::training_graph(deck),
                                        plan::job_spec(deck, build_target())),
                &deck, job::worker_options(deck), job::open_device(session, deck)},
        steps_(session, worker_, deck) {
    REQUIRE(!worker_.device().asynchronous(), "this device works later than it is told to");
  }

  DeckTimes times(int steps) {
    DeckTimes found;
    for (int i = 0; i < settling_steps; ++i) steps_.run();
    std::vector<double> walls;
    double spent = 0;
    const UsedSeconds before = used_seconds();
    const double start = now();
    for (int i = 0; i < most_steps && (i < steps || spent < least_seconds); ++i) {
      walls.push_back(mean_of_ranks(session_, {steps_.run().seconds}).front());
      spent += walls.back();
    }
    found.step = std::ranges::min(walls);
    const UsedSeconds after = used_seconds();
    const double own = session_.size() * mean_of_ranks(session_, {after.own - before.own}).front();
    found.by_others = std::max(0.0, after.all - before.all - own) / (now() - start);
    const program::Program& p = worker_.job().train();
    OpClock clock(p);
    for (int i = 0; i < steps; ++i) steps_.run(&clock);
    const std::vector<double> seconds = clock.medians();
    std::map<std::string, double> alone;
    const program::Issues issues(p);
    const plan::FilledRows filled = plan::filled_rows(p);
    for (program::OpId i = 0; i < issues.size(); ++i) {
      const program::Op& op = issues.op(i);
      if (op.type == program::Release::op) continue;
      const plan::GroupPlace place =
          plan::place_of(Coordinate(p.mesh, p.rank), op.comm.axes, session_.size());
      if (op.communicates() && place.members < 2) continue;
      double one = seconds[at(i)];
      if (op.communicates()) {
        const auto [it, fresh] = alone.try_emplace(key_of(p, op, place), 0.0);
        if (fresh) it->second = by_itself(op);
        one = it->second;
      }
      auto& rows = (op.communicates() ? found.collectives : found.kernels)[plan::kernel_name(p, op)];
      add(rows, {plan::kernel_work(p, op, place, filled), one});
    }
    return found;
  }

 private:
  /// Collectives of one key are alike on every rank, whatever else their Programs differ in.
  static std::string key_of(const program::Program& p, const program::Op& op, const plan::GroupPlace& place) {
    return fmt::format("{} {} {}", plan::kernel_name(p, op), op.comm.sent_bytes, place.members);
  }

  /// Keeps the mean of what does the same work.
  static void add(std::vector<SameOps>& rows, const plan::Measurement& m) {
    const auto same = std::ranges::find_if(rows, [&](const SameOps& r) { return r.one.work == m.work; });
    if (same == rows.end()) return rows.push_back({m, 1});
    same->one.seconds += (m.seconds - same->one.seconds) / ++same->count;
  }

  /// Behind a step nobody's sizes are left of rows that go to experts elsewhere: tokens choose evenly.
  void fill_sizes(const program::Op& op) {
    const program::Program& p = worker_.job().train();
    const std::int64_t rows = p.tensor(op.inputs[program::AllToAllRows::x]).shape[0];
    const plan::FilledRows filled = plan::filled_rows(p);
    const auto share = filled.find(rows);
    const program::TensorId sizes = op.inputs[program::AllToAllRows::sizes];
    const int members = plan::place_of(Coordinate(p.mesh, p.rank), op.comm.axes, session_.size()).members;
    const auto each = static_cast<std::int32_t>((share == filled.end() ? 1 : share->second) *
                                                static_cast<double>(rows) / members);
    auto* to = reinterpret_cast<std::int32_t*>(worker_.memory().address(p, sizes));
    std::fill(to, to + 3 * members, each);
  }

  /// Collective, in the order of the step, which is the same on all ranks.
  double by_itself(const program::Op& op) {
    const runtime::Queue queue = engine::queue_of(op.stream);
    const engine::Bound bound = engine::bind({worker_.job().train(), op, worker_.memory(), worker_.mesh(),
                                              worker_.device(), worker_.queues().exec(queue)});
    if (op.type == program::AllToAllRows::op) fill_sizes(op);
    LaunchClock clock(worker_);
    clock.seconds_of(queue, bound, 1);
    std::vector<double> seconds;
    for (int i = 0; i < batches; ++i) {
      session_.barrier();
      seconds.push_back(clock.seconds_of(queue, bound, launches) / launches);
    }
    return mean_of_ranks(session_, {std::ranges::min(seconds)}).front();
  }

  const runtime::Session& session_;
  job::Worker worker_;
  BenchSteps steps_;
};

}  // namespace

DeckTimes time_deck(const runtime::Session& session, telemetry::Console& console, const CalibrationDeck& text,
                    int steps) {
  const config::Deck deck = session.agree("reading a built-in deck", [&] {
    config::Deck d = config::parse_deck(text.text, text.name, {}, config::Files::elsewhere);
    config::validate_for_ranks(d, session.size(), session.max_ranks_per_node());
    return d;
  });
  DeckTimes times = TimedDeck(session, console, deck).times(steps);
  times.name = text.name;
  return times;
}

}  // namespace ztrain::bench
