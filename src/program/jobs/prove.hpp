#pragma once
// What a refusal of the proof means to those who run a deck.

#include <functional>

#include "program/jobs/compile.hpp"

namespace ztrain::program {

/// Runs a proof of compiled Programs. If it throws Error, that is a fault of the compiler or of the proof,
/// never of the deck: throws Error that says so, and names the keys of the deck to change meanwhile.
void prove(const JobSpec& spec, const std::function<void()>& proof);

}  // namespace ztrain::program
