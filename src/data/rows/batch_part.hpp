#pragma once
// Takes the part of a micro-batch that a rank has if several share its sequences (mesh.context), and adds its
// padding.

#include <cstdint>
#include <vector>

#include "data/rows/row_source.hpp"
#include "layout/token_order.hpp"

namespace ztrain::data {

/// Reads rows whole and takes the rank's part of all arrays. Positions and document starts travel with the
/// tokens; starts count from the first token of the whole micro-batch. Parts are of equal size: the tokens
/// are followed by padding, a document of its own of weight 0. Each padding token is the micro-batch's first
/// token at position 0 and so has its activations. The largest magnitude, from which 8-bit products make
/// scales, is therefore the same as without padding.
class BatchPart {
 public:
  /// Makes the part of a micro-batch of `tokens` tokens that rank `index` holds under `order`.
  BatchPart(std::int64_t tokens, const TokenOrder& order, int index);

  /// Calls read(MicroBatch), which writes all tokens, and copies the part to out.
  template <class Read>
  void fill(const MicroBatch& out, const Read& read) {
    if (runs_.empty()) return read(out);
    take_room(out);
    read(whole());
    copy_into_padding();
    take(out);
  }

 private:
  MicroBatch whole();
  void take_room(const MicroBatch& out);
  void copy_into_padding();
  void take(const MicroBatch& out) const;

  std::vector<TokenRun> runs_;  ///< empty if the part is all tokens
  /// Arrays of all tokens; empty likewise.
  std::vector<std::int32_t> tokens_, targets_, positions_, document_start_;
  std::vector<float> weights_;
  std::vector<std::int32_t> sequences_;
  std::vector<double> reference_;
  std::vector<std::int64_t> places_;
  std::int64_t padding_ = 0;
};

}  // namespace ztrain::data
