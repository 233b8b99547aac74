// A victim for tests/fault/checkpoint_kill.sh.
//   checkpoint_kill save FOLDER    saves step after step, each twice, until it is killed; tells its process
//   numbers in
//                                  FOLDER/pids
//   checkpoint_kill check FOLDER   every checkpoint in FOLDER loads and has the values of its step; prints
//   the newest step
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "runtime/session/session.hpp"
#include "tests/support/checkpoint_model.hpp"

namespace {

using namespace ztrain;
namespace fs = std::filesystem;

constexpr std::int64_t head_rows = 20011;

std::int64_t step_of(const fs::path& path) {
  return std::atoll(path.filename().string().c_str() + 5);
}

void write_pids(const runtime::Session& session, const fs::path& folder) {
  int pid = getpid();
  std::vector<int> pids(static_cast<std::size_t>(session.size()));
  MPI_Gather(&pid, 1, MPI_INT, pids.data(), 1, MPI_INT, 0, session.world());
  if (session.rank() != 0) return;
  std::ofstream file(folder / "pids.new");
  for (int p : pids) file << p << "\n";
  file.close();
  fs::rename(folder / "pids.new", folder / "pids");
}

void save_for_ever(const runtime::Session& session, const fs::path& folder) {
  MeshShape mesh;
  mesh[Axis::shard] = session.size();
  const Layout layout(test::awkward_parameters(1, head_rows), {3, {session.size()}});
  const test::Place place{&layout, Coordinate(mesh, session.rank())};
  test::Shards shards(place, DType::f32);
  const auto newest = checkpoint::newest(folder);
  session.barrier();
  write_pids(session, folder);
  for (std::int64_t step = newest ? step_of(*newest) + 1 : 1;; ++step) {
    shards.fill(step);
    for (int again = 0; again < 2; ++again)
      session.agree("saving", [&] {
        checkpoint::save(folder, step, place, shards.states(), {{"step", step}}, {2, 3});
      });
  }
}

void check(const fs::path& folder) {
  const Layout layout(test::awkward_parameters(1, head_rows), {3, {1}});
  const test::Place place{&layout, Coordinate({}, 0)};
  for (const fs::path& path : checkpoint::list(folder)) {
    const std::int64_t step = step_of(path);
    REQUIRE(test::filled(place, DType::f32, step) == test::loaded(path, place, DType::f32),
            "{}: has other values than were saved", path.string());
    REQUIRE(checkpoint::read_metadata(path).at("step") == step, "{}: has another step's metadata",
            path.string());
  }
  const auto newest = checkpoint::newest(folder);
  std::printf("%lld\n", newest ? static_cast<long long>(step_of(*newest)) : 0LL);
}

}  // namespace

int main(int argc, char** argv) try {
  const runtime::Session session(&argc, &argv);
  const std::string mode = argc == 3 ? argv[1] : "";
  REQUIRE(mode == "save" || mode == "check", "usage: checkpoint_kill save|check FOLDER");
  mode == "save" ? save_for_ever(session, argv[2]) : check(argv[2]);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "checkpoint_kill: %s\n", e.what());
  return 1;
}
