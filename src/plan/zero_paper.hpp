#pragma once
// The memory arithmetic of the ZeRO paper (Rajbhandari et al., 2020) for Adam in mixed precision: 16 bytes a
// parameter, 2 for the weight, 2 for its gradient, 12 for master weight and two moments, each divided by the
// ranks where it is sharded. It counts states alone: no activations, no gathered copies, no workspaces.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/strategy.hpp"

namespace ztrain::plan {

inline constexpr double weight_bytes = 2, gradient_bytes = 2, optimizer_bytes = 12;

/// Bytes of states on one of `ranks` ranks. frozen: parameters besides, of which there is the weight alone.
double zero_paper_bytes(double parameters, const config::Strategy& strategy, double ranks, double frozen = 0);

/// The least number of devices whose memory, all of it, holds one copy of the states.
std::int64_t zero_paper_floor(double parameters, double device_bytes);

struct ZeroPaperRow {
  std::int64_t ranks = 0;
  double bytes = 0;  ///< ZeRO-3's states on one rank, and what is beside them
  bool fits = false;
};
/// With so many bytes beside ZeRO-3's states on each rank: whole nodes from the floor on, up to and with the
/// first that leaves a third of the device free, or `most` rows.
std::vector<ZeroPaperRow> zero_paper_sizes(double parameters, double device_bytes, double beside,
                                           int ranks_per_node, int most = 6);

struct ZeroPaperQuestion {
  double parameters = 0;
  std::int64_t ranks = 1;
  double device_bytes = 80e9;
  /// Activations, gathered units, workspaces, the device's context. Not given: a quarter of the device.
  std::optional<double> beside_bytes{};
  int ranks_per_node = 8;
};
/// The tables for people; sizes in GB = 1e9 bytes.
std::string zero_paper_text(const ZeroPaperQuestion& question);

}  // namespace ztrain::plan
