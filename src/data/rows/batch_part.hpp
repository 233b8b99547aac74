#pragma once
// The part of a micro-batch that a rank has if several share its sequences (mesh.context), and its padding.

#include <cstdint>
#include <vector>

#include "data/rows/row_source.hpp"
#include "layout/token_order.hpp"

namespace ztrain::data {

/// Rows are read whole, and the rank's part of all arrays is taken. Positions and document starts travel with
/// the tokens: the latter count from the first token of the whole micro-batch. Parts are of equal size:
/// behind the tokens comes padding, a document of its own of weight 0. Each of its tokens is the
/// micro-batch's first, at position 0, as that one is: the activations are that token's, so the largest
/// magnitude, of which the scales of 8-bit products are made, is that without padding.
class BatchPart {
 public:
  /// That of rank `index` of the order, of a micro-batch of these tokens.
  BatchPart(std::int64_t tokens, const TokenOrder& order, int index);

  /// read(MicroBatch) writes all tokens; out takes the part.
  template <class Read>
  void fill(const MicroBatch& out, const Read& read) {
    if (runs_.empty()) return read(out);
    read(whole());
    copy_into_padding();
    take(out);
  }

 private:
  MicroBatch whole();
  void copy_into_padding();
  void take(const MicroBatch& out) const;

  std::vector<TokenRun> runs_;                                               ///< none where it is all tokens
  std::vector<std::int32_t> tokens_, targets_, positions_, document_start_;  ///< of all tokens; likewise
  std::vector<float> weights_;
  std::int64_t padding_ = 0;
};

}  // namespace ztrain::data
