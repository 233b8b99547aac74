// Traces of hand-made Programs: what an op waits for, the memory in use, and steps of many micro-batches.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "plan/step_time.hpp"
#include "plan/trace/memory_track.hpp"
#include "plan/trace/step_trace.hpp"
#include "tests/support/programs.hpp"

namespace ztrain::plan::trace_test {
namespace {

using namespace program;
using nlohmann::json;
using test::Builder;

/// A second per 100 bytes of memory, 1000 flops, and 10 bytes that are sent.
Machine slow_machine() {
  Machine m;
  m.peak_flops = 1000, m.compute_efficiency = 1;
  m.memory_bandwidth = 100, m.memory_efficiency = 1;
  m.intra_node_bandwidth = 10, m.latency = 0;
  return m;
}

StepTimes times_of(const Program& step, const Machine& machine) {
  std::vector<StepTimes> times;
  simulate_stages({&step}, machine, &times);
  return times.front();
}

/// The events of a trace, as its file has them.
json events_of(TraceFile& trace) {
  const std::string path = testing::TempDir() + "ztrain_trace.json";
  OutputFile file = OutputFile::create(path);
  trace.write(file, {{"source", "plan"}});
  std::ifstream in(path);
  const json whole = parse_json(std::string(std::istreambuf_iterator<char>(in), {}));
  EXPECT_EQ(whole["otherData"]["source"], "plan");
  return whole["traceEvents"];
}

json with_phase(const json& events, const char* phase) {
  json found = json::array();
  for (const json& event : events)
    if (event["ph"] == phase) found.push_back(event);
  return found;
}

/// Parameters of 100 bytes are gathered to 200, a product makes 40 of them, and what was gathered is
/// released.
Builder gathered_product() {
  Builder b;
  b.program.mesh[Axis::shard] = 2;
  b.program.units = {"head \"a\""};
  const TensorId own = b.persistent("param", 25), full = b.transient("full", 50),
                 out = b.transient("out", 10);
  b.program.tensor(full).category = Category::gathered;
  const OpId gather = b.communicate(CommKind::all_gather, Axis::shard, Stream::gather, {own}, {full});
  b.program.op(gather).action = {ActionKind::gather, 0, -1};
  b.program.op(gather).comm.sent_bytes = 100;
  b.program.op(b.op("linear", Stream::compute, {full}, {out}, {ActionKind::forward, 0, 0})).flops = 5000;
  b.release(full);
  b.program.op(b.op("linear", Stream::compute, {out}, {out}, {ActionKind::forward, 0, 0})).flops = 1000;
  b.finish();
  return b;
}

TEST(Trace, SaysWhatAnOpWaitedForAndWhatIsInMemory) {
  const Builder b = gathered_product();
  TraceFile file;
  const StepTimes times = times_of(b.program, slow_machine());
  EXPECT_EQ(add_step(file, {.step = b.program, .times = times, .process = 3}), -1) << "no micro-batch is cut";
  const json events = events_of(file), slices = with_phase(events, "X");
  ASSERT_EQ(slices.size(), 5U);
  const json &gather = slices[0]["cat"] == "gather" ? slices[0] : slices[1],
             &wait = slices[0]["cat"] == "gather" ? slices[1] : slices[0], &product = slices[2];
  EXPECT_EQ(gather["name"], "of step 0");
  EXPECT_EQ(gather["args"]["of"], "gather head \"a\"");
  EXPECT_EQ(gather["args"]["bytes"], 100);
  EXPECT_EQ(wait["name"], "waits for gather head \"a\"");
  EXPECT_EQ(wait["dur"], 10e6) << "microseconds";
  EXPECT_EQ(wait["tid"], product["tid"]);
  EXPECT_EQ(product["ts"], 10e6);
  EXPECT_EQ(product["dur"], 5e6);
  EXPECT_EQ(product["args"]["flops"], 5000);
  const json leaves = with_phase(events, "s"), reaches = with_phase(events, "f");
  ASSERT_EQ(leaves.size(), 1U);
  ASSERT_EQ(reaches.size(), 1U);
  EXPECT_EQ(leaves[0]["id"], reaches[0]["id"]);
  EXPECT_EQ(leaves[0]["tid"], gather["tid"]);
  EXPECT_EQ(reaches[0]["ts"], product["ts"]);
  const json peak = with_phase(events, "i");
  ASSERT_EQ(peak.size(), 1U);
  EXPECT_EQ(peak[0]["ts"], 10e6) << "the product has what was gathered and what it makes";
  EXPECT_EQ(peak[0]["args"]["bytes"], 340);
  EXPECT_EQ(peak[0]["args"]["largest"], (json{{"full", 200}, {"param", 100}, {"out", 40}}));
  json gathered = json::array();
  for (const json& point : with_phase(events, "C"))
    if (point["name"] == "memory (device)") gathered.push_back({point["ts"], point["args"]["gathered"]});
  EXPECT_EQ(gathered, (json{{0, 200}, {10e6, 200}, {15e6, 0}, {16e6, 0}}));
}

TEST(Trace, DrawsTheMicroBatchesInTheMiddleTogether) {
  Builder b;
  const TensorId x = b.persistent("x", 1);
  for (int micro = 0; micro < 20; ++micro)
    for (const ActionKind kind : {ActionKind::forward, ActionKind::backward})
      b.program.op(b.op("linear", Stream::compute, {x}, {x}, {kind, 0, micro})).flops = 1000;
  b.finish();
  TraceFile file;
  const StepTimes times = times_of(b.program, slow_machine());
  EXPECT_EQ(add_step(file, {.step = b.program, .times = times, .slices = 20}), 4);
  const json slices = with_phase(events_of(file), "X");
  ASSERT_EQ(slices.size(), 17U) << "8 micro-batches of two ops, and the rest";
  const json& rest = slices[8];
  EXPECT_EQ(rest["name"], "24 ops of micro-batches 4 to 15");
  EXPECT_EQ(rest["ts"], 8e6);
  EXPECT_EQ(rest["dur"], 24e6);
  EXPECT_EQ(rest["args"]["seconds"], (json{{"forward linear", 12}, {"backward linear", 12}}));
  EXPECT_EQ(slices[9]["args"]["micro"], 16);
  EXPECT_EQ(slices[9]["ts"], 32e6);
}

TEST(Trace, KeepsThePeakOfManyPointsOfMemory) {
  MemoryTrack track;
  for (int i = 0; i < 1000; ++i) track.points.push_back({static_cast<double>(i), {i == 637 ? 9 : i % 5}});
  track.peak = 637;
  thin_out(track, 30);
  EXPECT_LE(track.points.size(), 30U);
  EXPECT_EQ(track.points[track.peak].when, 637);
  EXPECT_EQ(track.points[track.peak].total(), 9);
}

}  // namespace
}  // namespace ztrain::plan::trace_test
