#pragma once
// Hashes of the values of parameters. They do not depend on how the parameters are cut, so runs on any mesh
// compare them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.hpp"
#include "checkpoint/checkpoint.hpp"
#include "layout/layout.hpp"

namespace ztrain::checkpoint {

/// Sums, modulo 2^64, a hash of each element of a parameter: of the parameter's name, the element's index in
/// the whole tensor and its bits. The sum over all ranks that own parts of a parameter is its hash.
class ValueHashes {
 public:
  explicit ValueHashes(std::span<const ParameterShape> parameters);

  /// Makes the hash of a parameter that of its values in this dtype, whatever dtype add() is given.
  void set_dtype(std::size_t parameter, DType dtype) { dtypes_[parameter] = static_cast<int>(dtype); }
  /// Adds row-major elements [begin, begin + count) of the whole parameter.
  void add(std::size_t parameter, std::int64_t begin, std::int64_t count, const std::byte* values,
           DType dtype);
  /// Adds the elements of these shards of "model" that the rank at this place owns.
  void add(const Place& place, std::span<const StateShard> shards);

  /// Return the sums and the dtypes of the parameters. The dtype is -1 if there were no elements.
  const std::vector<std::uint64_t>& sums() const { return sums_; }
  const std::vector<int>& dtypes() const { return dtypes_; }

 private:
  std::vector<std::uint64_t> keys_, sums_;
  std::vector<int> dtypes_;
  std::vector<std::byte> block_;
};

}  // namespace ztrain::checkpoint
