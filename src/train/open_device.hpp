#pragma once
// What a rank computes on.

#include <functional>
#include <memory>

#include "config/deck.hpp"
#include "runtime/device.hpp"
#include "runtime/session.hpp"

namespace ztrain::train {

/// Collective. The device of this build, or with debug.asynchronous the deferred one; kernels can run on it.
/// Throws AgreedError, which says what is missing, where there is none.
std::unique_ptr<runtime::Device> open_device(const runtime::Session& session, const config::Deck& deck);

/// [device] of a deck that says nothing.
config::Device default_device_options();

/// Runs work that the host has for the device outside of Programs, and waits for it.
void run_on(runtime::Device& device, const std::function<void()>& work);

}  // namespace ztrain::train
