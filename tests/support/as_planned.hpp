#pragma once
// What a rank sends and the memory that it touches, counted, beside what was planned.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include "base/shape.hpp"
#include "job/worker.hpp"
#include "plan/rates/traffic.hpp"
#include "runtime/device/device.hpp"

namespace ztrain::test {

/// By the axes over which they go; axes over which nothing is sent are left out.
using BytesByAxes = std::map<std::string, std::int64_t>;

inline BytesByAxes planned_bytes(const program::Program& program) {
  BytesByAxes bytes;
  for (const plan::TrafficRow& row : plan::traffic_of(program))
    if (row.bytes > 0) bytes[to_string(row.axes, program.mesh)] += row.bytes;
  return bytes;
}

/// What a step sent is what was planned. Of rows for experts the plan has the most that there may be, and a
/// step that is taken again sends more.
inline void expect_as_planned(const job::Worker& worker, BytesByAxes sent) {
  const program::Program& train = worker.job().train();
  BytesByAxes least = planned_bytes(train), most = least;
  for (const plan::TrafficRow& row : plan::traffic_of(train))
    if (row.kind == program::CommKind::all_to_all_rows) least[to_string(row.axes, train.mesh)] -= row.bytes;
  if (const program::Program* again = worker.job().all_rows())
    for (const auto& [axes, bytes] : planned_bytes(*again)) most[axes] += bytes;
  for (const auto& [axes, bytes] : most) {
    EXPECT_GE(sent[axes], least[axes]) << axes;
    EXPECT_LE(sent[axes], bytes) << axes;
  }
  EXPECT_EQ(sent.size(), most.size());
}

/// The communicators count; `run` takes one train step.
template <class Run>
void expect_planned_bytes(job::Worker& worker, Run&& run) {
  const MeshShape& mesh = worker.job().train().mesh;
  const auto before = worker.mesh().bytes_sent();
  run();
  BytesByAxes sent;
  for (const runtime::Mesh::Sent& s : worker.mesh().bytes_sent()) sent[to_string(s.axes, mesh)] += s.bytes;
  for (const runtime::Mesh::Sent& s : before) sent[to_string(s.axes, mesh)] -= s.bytes;
  std::erase_if(sent, [](const auto& entry) { return entry.second == 0; });
  expect_as_planned(worker, std::move(sent));
}

/// Of a worker that poisons its memory, which touches every byte of every tensor: so what is resident is what
/// was planned, in pages; each region has a guard page at either end.
inline void expect_planned_memory(const job::Worker& worker) {
  constexpr std::int64_t page = 4096;
  worker.memory().check_guards();
  if (runtime::built_for_gpus()) return;  // whose memory is not taken by pages that are touched
  std::int64_t planned = 0;
  const auto& job = worker.job();
  for (int tier = 0; tier < program::tier_count; ++tier) {
    if (static_cast<program::Tier>(tier) == program::Tier::nvme)
      continue;  // files, of which nothing is resident
    const std::int64_t transient =
        std::max({job.load().plan[tier].transient_bytes, job.train().plan[tier].transient_bytes,
                  job.evaluate().plan[tier].transient_bytes});
    for (const std::int64_t bytes : {job.train().plan[tier].persistent_bytes, transient})
      if (bytes > 0) planned += round_up(bytes, page) + 2 * page;
  }
  EXPECT_EQ(round_up(worker.memory().resident_bytes(), page), planned);
}

/// Each tier, also one that is no memory, holds what is kept, and what the Program that needs most of it has
/// beside that.
inline void expect_planned_tiers(const job::Worker& worker) {
  const engine::JobMemory& memory = worker.memory();
  memory.check_guards();
  for (int t = 0; t < program::tier_count; ++t) {
    std::int64_t kept = 0, within = 0;
    for (const program::Program* p : worker.job().programs.all()) {
      kept = p->plan[t].persistent_bytes;
      within = std::max(within, p->plan[t].transient_bytes);
    }
    const auto tier = static_cast<program::Tier>(t);
    EXPECT_EQ(memory.persistent_bytes(tier), kept) << name_of(tier);
    EXPECT_EQ(memory.transient_bytes(tier), within) << name_of(tier);
  }
}

}  // namespace ztrain::test
