#include "engine/segments.hpp"

namespace ztrain::engine {
namespace {

using program::OpId;

/// Appends a segment; neighbours that are not captured are one.
void append(std::vector<Segment>& segments, const Segment& next) {
  if (next.begin == next.end) return;
  if (!segments.empty() && !segments.back().captured && !next.captured)
    segments.back().end = next.end;
  else
    segments.push_back(next);
}

}  // namespace

std::vector<Segment> segments_of(Graphs graphs, std::span<const Site> sites) {
  std::vector<Segment> segments;
  const auto count = static_cast<OpId>(sites.size());
  if (graphs != Graphs::compute) {
    append(segments, {0, count, graphs == Graphs::step});
    return segments;
  }
  const auto at = [&](OpId id) { return sites[static_cast<std::size_t>(id)]; };
  for (OpId begin = 0, end = 0; begin < count; begin = end) {
    end = begin + 1;
    if (at(begin).kernel)
      while (end < count && at(end).kernel && !at(end).waits && !at(end - 1).signals) ++end;
    append(segments, {begin, end, end - begin > 1});
  }
  return segments;
}

}  // namespace ztrain::engine
