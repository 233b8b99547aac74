#pragma once
// Reads the mask of a source from front to end without holding it.

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokens/token_source.hpp"

namespace ztrain::data {

class MaskStream {
 public:
  /// key is the deck's, for messages. source must outlive the stream.
  MaskStream(const TokenSource& source, std::string key);

  /// Returns the trained tokens of [begin, end): all of them in a source without a mask. begin is not below
  /// the end of the previous call. Throws Error naming file and token for values other than 0 and 1.
  std::int64_t count(std::int64_t begin, std::int64_t end);

  /// Reads the rest. Returns a hash of the whole mask; 0 for a source without one.
  std::uint64_t finish();

 private:
  void next_block();

  const TokenSource& source_;
  std::string key_;
  std::vector<std::uint8_t> block_;
  std::int64_t begin_ = 0, end_ = 0;  ///< range of the block, in the source
  std::uint64_t hash_ = 0;
};

}  // namespace ztrain::data
