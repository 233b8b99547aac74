#include "train/peak.hpp"

namespace ztrain::train {
namespace {

config::Arithmetic arithmetic_of(const config::Deck& deck) {
  using config::Arithmetic;
  if (deck.precision.fp8 != "none") return Arithmetic::fp8;
  switch (deck.precision.parameters) {
    case DType::f64:
      return Arithmetic::fp64;
    case DType::f32:
      return deck.device.tf32 ? Arithmetic::tf32 : Arithmetic::fp32;
    default:
      return Arithmetic::bits16;
  }
}

}  // namespace

Peak peak_of(const config::Deck& deck, const std::string& device) {
  Peak peak;
  peak.arithmetic = arithmetic_of(deck);
  if (deck.cluster.peak_tflops > 0) {
    peak.flops_per_second = deck.cluster.peak_tflops * 1e12;
    peak.source = "cluster.peak_tflops";
  } else if (const double known = config::device_peak(device, peak.arithmetic); known > 0) {
    peak.flops_per_second = known * 1e12;
    peak.source = device;
  }
  return peak;
}

}  // namespace ztrain::train
