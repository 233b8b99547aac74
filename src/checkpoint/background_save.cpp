#include "checkpoint/background_save.hpp"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/host_threads.hpp"
#include "checkpoint/rank_group.hpp"

namespace ztrain::checkpoint {

BackgroundSave::BackgroundSave(Saving saving) : saving_(std::move(saving)) {
  begin_work();
}

BackgroundSave::~BackgroundSave() {
  given_up_ = true;
  if (thread_.joinable()) thread_.join();
}

/// If the system gives this rank no thread, the others learn of it in the exchange.
void BackgroundSave::begin_work() {
  works_ = true;
  try {
    thread_ = thread_without_signals([this] {
      const double start = now();
      saving_.work([this](std::int64_t done, std::int64_t total) { note(done, total); });
      seconds_ += now() - start;
      works_ = false;
    });
  } catch (const std::system_error& e) {
    saving_.fail(fmt::format("no thread could be started to write it: {}", e.code().message()));
    works_ = false;
  }
}

/// A thread that is given up is waited for until its present block of tensor bytes is written.
void BackgroundSave::note(std::int64_t done, std::int64_t total) {
  written_ = done;
  bytes_ = total;
  REQUIRE(!given_up_, "the run has failed, and with it this checkpoint");
}

bool BackgroundSave::advance() {
  if (thread_.joinable()) thread_.join();
  if (saving_.exchange()) return true;
  begin_work();
  return false;
}

void BackgroundSave::finish(const std::function<void()>& idle) {
  const Group world = Group::world();
  do world.wait_for_all(idle, [this] { return works(); });
  while (!advance());
}

}  // namespace ztrain::checkpoint
