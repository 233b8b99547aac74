#include "plan/trace/memory_track.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/shape.hpp"

namespace ztrain::plan {
namespace {

using program::Program;
using program::StepTimes;
using program::Tensor;

struct Life {
  double begin = std::numeric_limits<double>::infinity(), end = -1;
};

/// By tensor that has storage.
std::vector<Life> lives_of(const Program& step, const StepTimes& times) {
  std::vector<Life> lives(step.tensors.size());
  for (std::size_t op = 0; op < step.ops.size(); ++op)
    for (const auto* operands : {&step.ops[op].inputs, &step.ops[op].outputs})
      for (const program::TensorId id : *operands) {
        Life& life = lives[at(step.storage(id))];
        life.begin = std::min(life.begin, times.ops[op].begin);
        life.end = std::max(life.end, times.ops[op].end);
      }
  return lives;
}

/// A tensor that comes into use, or (with negative bytes) goes out of it.
struct Use {
  double when;
  std::int64_t bytes;
  program::Category category;
};

/// At one time bytes become free before others are taken.
std::vector<Use> uses_of(const Program& step, const std::vector<Life>& lives, program::Tier tier) {
  std::vector<Use> uses;
  for (std::size_t t = 0; t < lives.size(); ++t) {
    const Tensor& tensor = step.tensors[t];
    if (tensor.base != program::no_tensor || tensor.tier != tier || tensor.persistent || lives[t].end < 0)
      continue;
    uses.push_back({lives[t].begin, tensor.bytes(), tensor.category});
    uses.push_back({lives[t].end, -tensor.bytes(), tensor.category});
  }
  std::ranges::stable_sort(uses, [](const Use& a, const Use& b) {
    return a.when != b.when ? a.when < b.when : a.bytes < b.bytes;
  });
  return uses;
}

}  // namespace

std::int64_t MemoryPoint::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

MemoryTrack memory_track(const Program& step, const StepTimes& times, program::Tier tier, double begin) {
  MemoryTrack track;
  const std::vector<Life> lives = lives_of(step, times);
  MemoryPoint point{begin, {}};
  for (const Tensor& tensor : step.tensors)
    if (tensor.base == program::no_tensor && tensor.tier == tier && tensor.persistent)
      point.bytes[at(tensor.category)] += tensor.bytes();
  const std::vector<Use> uses = uses_of(step, lives, tier);
  if (uses.empty() && point.total() == 0) return track;
  track.points.push_back(point);
  for (const Use& use : uses) {
    if (use.when > track.points.back().when) track.points.push_back({use.when, track.points.back().bytes});
    track.points.back().bytes[at(use.category)] += use.bytes;
  }
  const auto peak = std::ranges::max_element(track.points, {}, &MemoryPoint::total);
  track.peak = static_cast<std::size_t>(peak - track.points.begin());
  for (std::size_t t = 0; t < lives.size(); ++t) {
    const Tensor& tensor = step.tensors[t];
    const bool there = tensor.persistent || (lives[t].begin <= peak->when && peak->when < lives[t].end);
    if (tensor.base == program::no_tensor && tensor.tier == tier && there)
      track.at_peak.emplace_back(tensor.name, tensor.bytes());
  }
  std::ranges::stable_sort(track.at_peak, std::ranges::greater{},
                           [](const auto& entry) { return entry.second; });
  track.at_peak.resize(std::min(track.at_peak.size(), MemoryTrack::listed));
  return track;
}

void thin_out(MemoryTrack& track, std::size_t most) {
  const std::size_t count = track.points.size();
  if (count <= most) return;
  const std::size_t together = (count + most - 1) / most;
  std::vector<MemoryPoint> kept;
  const MemoryPoint peak = track.points[track.peak];
  for (std::size_t from = 0; from < count; from += together) {
    const auto first = track.points.begin() + static_cast<std::ptrdiff_t>(from);
    const auto last = track.points.begin() + static_cast<std::ptrdiff_t>(std::min(count, from + together));
    kept.push_back(
        *std::max_element(first, last, [](const auto& a, const auto& b) { return a.total() < b.total(); }));
    if (kept.back().when == peak.when) track.peak = kept.size() - 1;
  }
  track.points = std::move(kept);
}

}  // namespace ztrain::plan
