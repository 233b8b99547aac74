#include "train/starting_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/clock.hpp"
#include "base/text.hpp"
#include "config/hf/starting_point.hpp"
#include "job/require_memory.hpp"

namespace ztrain::train {
namespace {

constexpr int most_ranks_listed = 8;

/// What one rank has read, and its resident memory. All members are 8 bytes: ranks exchange it as it is.
struct Reading {
  std::int64_t bytes = 0;    ///< of the files
  std::int64_t weights = 0;  ///< what they are in this rank's memory
  std::int64_t before = 0, after = 0, peak = 0;
};

std::string line_of(std::size_t rank, const Reading& r) {
  return fmt::format("  rank {}: {} of weights; resident memory {} before, {} after, {} at its peak\n", rank,
                     format_bytes(r.weights), format_bytes(r.before), format_bytes(r.after),
                     format_bytes(r.peak));
}

std::string report(const std::vector<Reading>& all, double seconds) {
  double bytes = 0;
  for (const Reading& r : all) bytes += static_cast<double>(r.bytes);
  std::string lines = fmt::format("{} read in {:.1f} s, {:.2f} GB/s over all ranks\n", format_bytes(bytes),
                                  seconds, seconds > 0 ? bytes / seconds * 1e-9 : 0.0);
  if (static_cast<int>(all.size()) <= most_ranks_listed) {
    for (std::size_t r = 0; r < all.size(); ++r) lines += line_of(r, all[r]);
    return lines;
  }
  const auto most = std::ranges::max_element(all, {}, &Reading::peak);
  return lines + line_of(static_cast<std::size_t>(most - all.begin()), *most);
}

}  // namespace

void start_from_weights(const runtime::Session& session, telemetry::Console& console, job::Worker& worker,
                        const config::Deck& deck) {
  telemetry::Phase phase(console, "reading the weights", [&] { return worker.position(); });
  const std::string& folder = deck.model.from;
  console.print(fmt::format("reading the weights of {}{}\n", folder,
                            config::is_checkpoint(folder) ? ", a checkpoint, and nothing else of it" : ""));
  const double start = now();
  Reading mine;
  mine.before = runtime::resident_bytes();
  const auto imported = session.agree("reading the weights", [&] {
    return worker.import_weights(
        folder, [&](std::int64_t done, std::int64_t total) { phase.at(share_of(done, total, "read")); });
  });
  mine.bytes = imported.bytes;
  mine.weights = worker.weight_bytes();
  mine.after = runtime::resident_bytes();
  mine.peak = runtime::peak_resident_bytes();
  console.print(report(job::of_all(session, mine), now() - start));
  if (!imported.absent.empty())
    console.print(
        fmt::format("{} adapter weights are drawn from seed {}\n", imported.absent.size(), deck.run.seed));
  worker.complete_import(imported, static_cast<std::uint64_t>(deck.run.seed));
}

}  // namespace ztrain::train
