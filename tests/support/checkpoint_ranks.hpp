#pragma once
// Meshes of ranks that save and load, and a folder that all of them know, for tests under mpirun.

#include <gtest/gtest.h>

#include "tests/support/checkpoint_model.hpp"
#include "tests/support/folder_of_ranks.hpp"

namespace ztrain::test {

namespace fs = std::filesystem;

inline int ranks() {
  return session().size();
}

/// One rank of a mesh: its layout and its place.
struct Rank {
  Rank(const MeshShape& mesh, int rank, std::int64_t head = 1001)
      : layout(awkward_parameters(mesh[Axis::tensor], head), {3, {mesh[Axis::shard]}},
               Coordinate(mesh, rank)),
        place{&layout, Coordinate(mesh, rank)} {}
  Rank(const Rank&) = delete;
  Layout layout;
  Place place;
};

/// In a folder that all ranks know.
class CheckpointOfRanks : public testing::Test {
 protected:
  /// Saves from the world's mesh. Copies that do not own what they hold save garbage, which nobody may see.
  fs::path save(const MeshShape& mesh, const StateKinds& kinds, std::int64_t step,
                const checkpoint::SaveOptions& options = {}) {
    const Rank self(mesh, session().rank());
    Shards shards = filled(self.place, kinds);
    if (self.place.at[Axis::replicate] > 0) shards.clear(std::byte{0x77}, "");
    checkpoint::save(folder_, step, self.place, shards.states(), {{"step", step}}, options);
    return folder_ / ("step_" + std::to_string(step));
  }

  fs::path save(const MeshShape& mesh, DType model, std::int64_t step,
                const checkpoint::SaveOptions& options = {}) {
    return save(mesh, plain_states(model), step, options);
  }

  /// Loads every rank of `mesh`, shared out over the ranks of the job.
  static void expect_reload(const fs::path& path, const MeshShape& mesh, const StateKinds& kinds) {
    for (int r = session().rank(); r < mesh.ranks(); r += ranks()) {
      const Rank reader(mesh, r);
      for (bool verify : {true, false})
        EXPECT_TRUE(filled(reader.place, kinds) == loaded(path, reader.place, kinds, {.verify = verify}))
            << mesh.describe() << " rank " << r << (verify ? "" : " unverified");
    }
  }
  static void expect_reload(const fs::path& path, const MeshShape& mesh, DType model) {
    expect_reload(path, mesh, plain_states(model));
  }

  /// Rank 0 lets h5py read every tensor whole, and again after a shard file is gone. Collective.
  static void expect_h5py_reads(const fs::path& path, const std::string& python) {
    session().barrier();
    if (session().rank() == 0) {
      const std::string read = python + " tests/support/read_checkpoint.py " + path.string();
      EXPECT_EQ(run(read + " whole"), 0) << path;
      fs::remove(path / "shard_0000.h5");
      EXPECT_EQ(run(read + " missing"), 0) << path;
    }
    session().barrier();
  }

  FolderOfRanks own_;
  const fs::path& folder_ = own_.path();
};

}  // namespace ztrain::test
