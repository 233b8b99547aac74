#pragma once
// A checkpoint that is written behind training: what of the run it is, and since when.

#include <optional>
#include <string>
#include <utility>

#include "base/clock.hpp"
#include "checkpoint/background_save.hpp"

namespace ztrain::train {

/// What a checkpoint is of.
struct SavedState {
  std::int64_t step = -1;
  std::int64_t optimizer_steps = -1;  ///< how many its weights have behind them
};

struct SaveUnderWay {
  /// began: when training stopped for it, in seconds of now(). lost: the checkpoint before, where it is gone;
  /// else "".
  SaveUnderWay(checkpoint::Saving saving, SavedState what, double started, std::string before)
      : save(std::move(saving)),
        of(what),
        began(started),
        stalled(now() - started),
        lost(std::move(before)) {}

  checkpoint::BackgroundSave save;
  SavedState of;
  double began, stalled;  ///< stalled: seconds for which training has stood still
  std::string lost;
};

}  // namespace ztrain::train
