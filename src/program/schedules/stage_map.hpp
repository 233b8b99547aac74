#pragma once
// Where the stages of a pipeline are. The model is cut into ranks x chunks stages, in order of its blocks,
// and every rank has `chunks` of them.

namespace ztrain::program {

struct StageMap {
  int ranks = 1;   ///< of the pipeline
  int chunks = 1;  ///< of every rank
  /// Stages go back and forth over the ranks, so that the last rank's chunks are neighbours, and the first
  /// rank has both ends of the model (Qi et al., "Pipeline Parallelism with Controllable Memory", 2024).
  /// Otherwise they go round and round (Narayanan et al., "Efficient Large-Scale Language Model Training",
  /// 2021).
  bool vee = false;

  int stages() const { return ranks * chunks; }
  int chunk_of(int stage) const { return stage / ranks; }
  int rank_of(int stage) const {
    const int place = stage % ranks;
    return vee && chunk_of(stage) % 2 == 1 ? ranks - 1 - place : place;
  }
  int stage_of(int rank, int chunk) const {
    return chunk * ranks + (vee && chunk % 2 == 1 ? ranks - 1 - rank : rank);
  }
};

}  // namespace ztrain::program
