#pragma once
// Forms the sum of a reduction over the members of a group, in rank order, always with the same rounding.
// Prepares the sums and copies that communicators do on a device themselves.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/dtype.hpp"
#include "layout/comm_cost.hpp"

namespace ztrain::runtime {

/// out[i] (+)= sources[0][i] + sources[1][i] + ..., count elements each, added from left to right in fp32
/// (fp64 for fp64 sources) and rounded once to out's type. out may be one of the sources, but not overlap
/// them otherwise.
using RankSum = void (*)(const void* const* sources, int ranks, void* out, std::int64_t count);

/// Returns the sum for two types. in and out are fp32, bf16 or fp64, or fp16 to fp16 or fp32, or fp32 to
/// fp16; throws Error for others. With accumulate the sum is added to what out holds.
RankSum rank_sum(DType in, DType out, bool accumulate);

/// Throws Error naming the types.
[[noreturn]] void refuse_sum(DType in, DType out);

/// Returns choose.operator()<In, Out>() for the C++ types that can be summed; else calls refuse_sum.
template <class Choose>
auto of_sum_types(DType in, DType out, const Choose& choose) {
  decltype(choose.template operator()<float, float>()) chosen{};
  bool known = false;
  const auto offer = [&]<class In, class Out>() {
    if (in != dtype_of<In>() || out != dtype_of<Out>()) return;
    chosen = choose.template operator()<In, Out>();
    known = true;
  };
  const auto offer_each = [&]<class In, class... Out>() { (offer.template operator()<In, Out>(), ...); };
  offer_each.template operator()<float, float, bf16, double, f16>();
  offer_each.template operator()<bf16, float, bf16, double>();
  offer_each.template operator()<double, float, bf16, double>();
  offer_each.template operator()<f16, float, f16>();
  if (!known) refuse_sum(in, out);
  return chosen;
}

/// Sources that a rank sums after an exchange.
struct RankSources {
  const void* own;
  const void* others;  ///< rank r's is at exchange_slot(r, rank) * slot_bytes
  std::int64_t slot_bytes;
  int rank, ranks;

  constexpr const void* at(int r) const {
    return r == rank ? own : static_cast<const std::byte*>(others) + exchange_slot(r, rank) * slot_bytes;
  }
  std::vector<const void*> in_order() const {
    std::vector<const void*> sources;
    for (int r = 0; r < ranks; ++r) sources.push_back(at(r));
    return sources;
  }
};

/// Work that is prepared once and issued to a queue's stream: for Device::submit, which gives it the queue's
/// native stream. A null stream is the calling thread.
using StreamWork = std::function<void(void* stream)>;

/// Returns a copy. `to` and `from` do not overlap and are memory of the device.
StreamWork copy_work(void* to, const void* from, std::int64_t bytes);

/// Returns work that adds the sources, count elements each: out (+)= sum, with the contract and the bits of
/// rank_sum, except for which NaN it is. out may be sources.own, but must not overlap the sources otherwise.
/// Throws Error for the same types.
StreamWork rank_sum_work(DType in, DType out, bool accumulate, const RankSources& sources, void* to,
                         std::int64_t count);

/// Does the same on the calling thread in any build.
StreamWork host_copy_work(void* to, const void* from, std::int64_t bytes);
StreamWork host_rank_sum_work(DType in, DType out, bool accumulate, const RankSources& sources, void* to,
                              std::int64_t count);

}  // namespace ztrain::runtime
