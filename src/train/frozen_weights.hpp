#pragma once
// The weights that a run does not train and that its checkpoints do not hold (checkpoint.frozen): their
// hashes, and how a run that goes on gets them again.

#include <optional>
#include <string>

#include "checkpoint/hf/import.hpp"
#include "train/run.hpp"

namespace ztrain::train {

/// Frozen weights as a run has them at its start.
class FrozenWeights {
 public:
  explicit FrozenWeights(Run& run) : run_(run), hashes_(run.worker.job().layout.parameters()) {}

  /// Returns where an import adds up hashes of the frozen weights that it reads; null if nobody needs these.
  checkpoint::ValueHashes* hashes() { return is_needed() ? &hashes_ : nullptr; }
  /// Collective, after an import into hashes(). Compares what it has read of the base of a checkpoint in
  /// model.from, and notes the hashes for the run's own checkpoints. Throws AgreedError for another base.
  void imported(const checkpoint::Imported& imported);
  /// Collective. Makes the codes of weights that are kept in 4 or 8 bits, which no checkpoint holds, from
  /// model.from or drawn ones, and adds up their hashes. Returns the bytes of the folder that this rank has
  /// read.
  std::int64_t quantize();
  /// Collective. Gives magnitudes (lora.dora) that model.from lacks the norms of the rows of its weights.
  void start_magnitudes(const checkpoint::Imported& imported);
  /// Collective. Notes the hashes of weights that were drawn.
  void drawn();
  /// Collective, after the shards of a checkpoint were filled. Reads or draws those that it does not hold
  /// again, and notes their hashes. Does so too for a checkpoint that holds them, if those of this run will
  /// not. Throws AgreedError if the weights are others.
  void restore(const std::string& checkpoint, bool has_all,
               const std::optional<checkpoint::FrozenBase>& saved);

 private:
  bool is_needed() const;
  checkpoint::QuantizedNames quantized() const;
  std::vector<checkpoint::StateShard> shards() const;
  checkpoint::FrozenBase noted(const std::string& from, const checkpoint::ValueHashes& hashes) const;
  checkpoint::FrozenBase read_again();

  Run& run_;
  checkpoint::ValueHashes hashes_;
};

}  // namespace ztrain::train
