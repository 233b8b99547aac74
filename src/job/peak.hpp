#pragma once
// The dense peak that a run's speed is measured against.

#include <string>

#include "config/deck.hpp"
#include "config/fields/presets.hpp"

namespace ztrain::job {

/// What is divided by: FLOPs a second of one rank's device.
struct Peak {
  double flops_per_second = 0;  ///< dense; 0: not known
  config::Arithmetic arithmetic = config::Arithmetic::fp32;
  std::string source;  ///< "cluster.peak_tflops", "NVIDIA H100 80GB HBM3"; "": not known
};

/// At the dtype of the parameters, also where products are 8-bit: so speeds compare, with bf16's and with
/// what others report. cluster.peak_tflops where the deck says it, else what is known of the device, by what
/// its driver calls it.
Peak peak_of(const config::Deck& deck, const std::string& device);

/// Of 8-bit products, where the deck has them and the device is known; else of 0.
Peak fp8_peak_of(const config::Deck& deck, const std::string& device);

}  // namespace ztrain::job
