#pragma once
// One save, in stages. A stage is work that each rank does by itself, and a small exchange of all ranks
// behind it; so the work may be done by a thread beside training while only the one that trains communicates.

#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"

namespace ztrain::checkpoint {

class Saving {
 public:
  /// Collective, what save() is given and throws before it writes. The layout of `place` and the memory of
  /// `states` stay as they are for as long as this lives.
  Saving(std::filesystem::path folder, std::int64_t step, const Place& place, std::vector<StateShard> states,
         const nlohmann::json& metadata, const SaveOptions& options);
  Saving(Saving&& other) noexcept;
  ~Saving();

  /// This rank's work of the present stage, without communication, on whichever thread. What fails is kept
  /// for exchange(), also what `progress` throws.
  void work(const Progress& progress = {}) noexcept;
  /// In the place of work(): why it could not be done.
  void fail(std::string why) noexcept;
  /// Collective, behind work() on every rank. True: the checkpoint is in its place. Throws what save()
  /// throws; then there is nothing more to do.
  bool exchange();
  const Saved& saved() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ztrain::checkpoint
