#pragma once
// Says from which source a sample of the run is drawn, and how many samples of that source came before: a
// pure function of the sample's number, in O(1).
//
// The sources take turns by smooth weighted round robin: in each turn every source gains its share, and the
// source with the most is drawn and pays the sum of all shares. Over any period of as many samples as that
// sum, each source has exactly its share, and its draws are spread evenly. The seed chooses where in the
// period a run begins.

#include <cstdint>
#include <vector>

namespace ztrain::data {

/// Returns the smallest whole numbers in the ratio of the weights, to nine digits, whose sum is at most
/// 100,000. If there are none, throws Error naming data.weights, with the nearest ones.
std::vector<std::int64_t> shares_of(const std::vector<double>& weights);

class Mixture {
 public:
  /// shares are positive, one per source.
  Mixture(std::vector<std::int64_t> shares, std::int64_t seed);

  struct Draw {
    std::size_t source = 0;
    std::int64_t number = 0;  ///< samples of this source before this one
  };
  /// Returns the draw of sample >= 0.
  Draw operator()(std::int64_t sample) const;
  /// Returns the draws of a source among the first `samples` samples.
  std::int64_t drawn(std::size_t source, std::int64_t samples) const;

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
