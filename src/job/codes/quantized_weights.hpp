#pragma once
// Makes the codes of weights that are kept in 4 or 8 bits, while the weights are read or drawn. A rank holds
// its part of the codes, one window of elements in full precision and, of nested scales, one float for each
// block. The numbers that ranks must know of each other's parts (means, largest magnitudes) have the same
// bits on every mesh: sums are exact.

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "engine/job_memory.hpp"
#include "kernel_interface/quantized_weights.hpp"
#include "program/jobs/compile.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::job {

/// Gives elements [begin, begin + count) of a parameter of the layout, row-major, at most quantized_window.
using ReadElements = std::function<void(int parameter, std::int64_t begin, std::int64_t count, float* to)>;
/// Takes elements [begin, begin + count) of a parameter of the layout, row-major.
using DecodedElements =
    std::function<void(int parameter, std::int64_t begin, std::int64_t count, const float* values)>;
inline constexpr std::int64_t quantized_window = std::int64_t{1} << 20;

/// find, agree and encode come in this order, with the same elements both times.
class QuantizedWeights {
 public:
  /// The job and its memory must outlive this.
  QuantizedWeights(const program::Job& job, const engine::JobMemory& memory);

  /// Not collective. Makes the codes, or of 8 bits finds the largest magnitudes of rows alone.
  void find(const ReadElements& read);
  /// Collective.
  void agree(const runtime::Session& session);
  /// Not collective. Completes the codes and writes the statistics. Reads elements again for 8 bits alone.
  void encode(const ReadElements& read);
  /// Not collective. Gives what this rank owns as its codes say.
  void decode(const DecodedElements& decoded) const;

 private:
  /// Elements of one weight in this rank's shard.
  struct Part {
    int unit = 0;
    Piece piece;
    PartOfMatrix matrix;
    bool owned = false;
    std::vector<float> scales{};  ///< of blocks, if they are nested
  };

  void find_blocks(Part& part, const ReadElements& read);
  void find_rows(const Part& part, const ReadElements& read);
  void encode_scales(const Part& part);
  void encode_rows(const Part& part, const ReadElements& read);
  void write_statistics(int parameter, const std::vector<float>& statistics) const;
  /// Calls f(first element within the piece, values) for windows of the part's elements.
  template <class F>
  void each_window(const Part& part, const ReadElements& read, const F& f);
  /// Moves the codes of elements [at, at + count) of the part, from whole quanta on.
  void write(const Part& part, std::int64_t at, const std::vector<std::byte>& quanta) const;
  void read(const Part& part, std::int64_t at, std::vector<std::byte>& quanta) const;
  std::byte* address_of(const Part& part, std::int64_t at) const;
  memory::Provider& provider_of(const Part& part) const;

  const program::Job& job_;
  const engine::JobMemory& memory_;
  Coordinate here_;
  WeightForm form_{};
  std::vector<Part> parts_;
  std::map<int, ScalesOfWeight> scales_;          ///< by parameter
  std::map<int, std::vector<float>> statistics_;  ///< by parameter
};

}  // namespace ztrain::job
