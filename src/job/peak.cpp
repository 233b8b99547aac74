#include "job/peak.hpp"

namespace ztrain::job {
namespace {

config::Arithmetic arithmetic_of(const config::Deck& deck) {
  using config::Arithmetic;
  switch (deck.precision.parameters) {
    case DType::f64:
      return Arithmetic::fp64;
    case DType::f32:
      return deck.device.tf32 ? Arithmetic::tf32 : Arithmetic::fp32;
    default:
      return Arithmetic::bits16;
  }
}

Peak known_peak(const std::string& device, config::Arithmetic arithmetic) {
  const double known = config::device_peak(device, arithmetic);
  return {known * 1e12, arithmetic, known > 0 ? device : ""};
}

}  // namespace

Peak peak_of(const config::Deck& deck, const std::string& device) {
  const config::Arithmetic arithmetic = arithmetic_of(deck);
  if (deck.cluster.peak_tflops > 0)
    return {deck.cluster.peak_tflops * 1e12, arithmetic, "cluster.peak_tflops"};
  return known_peak(device, arithmetic);
}

Peak fp8_peak_of(const config::Deck& deck, const std::string& device) {
  if (deck.precision.fp8 == "none") return {};
  return known_peak(device, config::Arithmetic::fp8);
}

}  // namespace ztrain::job
