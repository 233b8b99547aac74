#pragma once
// Which source a sample of the run is drawn from, and how many samples of that source came before it: a pure
// function of the sample's number, in O(1).
//
// The sources take turns by smooth weighted round robin (each turn every source gains its share, the one
// with most is drawn and pays the sum of all shares): over any period of as many samples as the sum of the
// shares each source has exactly its share, and within a period the draws of a source are spread evenly. The
// seed chooses where in the period a run begins.

#include <cstdint>
#include <vector>

namespace ztrain::data {

/// The smallest whole numbers in the ratio of the weights, to nine digits, whose sum is at most 100,000.
/// Throws Error naming data.weights, with the nearest that would do, where there are none.
std::vector<std::int64_t> shares_of(const std::vector<double>& weights);

class Mixture {
 public:
  /// shares: positive, one per source.
  Mixture(std::vector<std::int64_t> shares, std::int64_t seed);

  struct Draw {
    std::size_t source = 0;
    std::int64_t number = 0;  ///< samples of this source before this one
  };
  /// sample >= 0.
  Draw operator()(std::int64_t sample) const;

  std::size_t sources() const { return shares_.size(); }

 private:
  struct Turn {
    std::uint32_t source;
    std::int32_t before;  ///< draws of this source earlier in the period
  };
  std::vector<std::int64_t> shares_;
  std::vector<Turn> period_;
};

}  // namespace ztrain::data
