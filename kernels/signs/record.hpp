#pragma once
// Sums of momenta over copies of a shard, of which ranks tell each other the signs: 1-bit Adam (Tang et al.,
// 2021, arXiv 2102.02888). Each rank's term of the sum, with what earlier steps rounded away, becomes a sign
// for each element and a scale for each quantum. A rank adds up the terms of its part, whose signs all get.

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/elementwise/record.hpp"
#include "kernels/record.hpp"

namespace ztrain::program {

/// gradient [S], momentum [S], error fp32 [S], scalars, error -> codes [quanta, sign_quantum_bytes], error:
/// of beta1 momentum / ranks + (1 - beta1) unclipped_multiplier gradient + error, for the elements of the
/// pieces. Codes of whole quanta beside the pieces, and behind the shard, are zeros.
struct EncodeSigns {
  static constexpr std::string_view op = "encode_signs";
  enum In : std::size_t { gradient, momentum, scalars, error };
  enum Out : std::size_t { codes, kept };
  static constexpr Count reads = 4, writes = 2;
  double beta1 = 0;
  std::int64_t ranks = 1;
  std::vector<Elements> pieces;  ///< of the shard, each from a whole quantum on
  static constexpr auto fields() {
    return std::tuple{Given{"beta1", &EncodeSigns::beta1}, Given{"ranks", &EncodeSigns::ranks},
                      Given{"pieces", &EncodeSigns::pieces}};
  }
};
/// codes of all ranks of the axes for this rank's part of the shard, scalars, error -> codes of their sum,
/// error, to which is added what these round away.
struct SumSigns {
  static constexpr std::string_view op = "sum_signs";
  enum In : std::size_t { terms, scalars, error };
  enum Out : std::size_t { codes, kept };
  static constexpr Count reads = 3, writes = 2;
  std::int64_t axes = 0;         ///< bits of an AxisSet
  std::int64_t begin = 0;        ///< the part's first element in the shard
  std::vector<Elements> pieces;  ///< of the part
  static constexpr auto fields() {
    return std::tuple{Given{"axes", &SumSigns::axes}, Given{"begin", &SumSigns::begin},
                      Given{"pieces", &SumSigns::pieces}};
  }
};
/// codes of the sum, momentum [S], scalars -> gradient [S]: what makes of the momentum what the codes say.
/// NaN where the step is not to be taken.
struct DecodeSigns {
  static constexpr std::string_view op = "decode_signs";
  enum In : std::size_t { codes, momentum, scalars };
  enum Out : std::size_t { gradient };
  static constexpr Count reads = 3, writes = 1;
  double beta1 = 0;
  std::vector<Elements> pieces;
  static constexpr auto fields() {
    return std::tuple{Given{"beta1", &DecodeSigns::beta1}, Given{"pieces", &DecodeSigns::pieces}};
  }
};

}  // namespace ztrain::program
