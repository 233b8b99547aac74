// Four ranks in the middle of a step. Rank 2 fails in the way that the argument names; 0 and 1 wait for
// messages that never come, 3 computes without end.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "runtime/comm/mesh_comms.hpp"
#include "telemetry/watchdog.hpp"

namespace {

using namespace ztrain;

void print_time_of_failure() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::printf("failed_at %lld\n",
              static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()));
  std::fflush(stdout);
}

void fail_as(const std::string& way, const runtime::Session& session) {
  print_time_of_failure();
  if (way == "abort") session.abort_all("the gradient of model.layers.1 is not finite");
  if (way == "throw") fail("thrown past the session");
  telemetry::Watchdog watchdog(0.2);
  watchdog.set_name(fmt::format("rank {} ({})", session.rank(), session.host()));
  watchdog.beat("recv model.layers.3");
  std::this_thread::sleep_for(std::chrono::hours(1));
}

void step(int* argc, char*** argv) {
  const runtime::Session session(argc, argv);
  MeshShape shape;
  shape[Axis::shard] = session.size();
  runtime::Mesh mesh(session, shape);
  runtime::Communicator& comm = mesh.over(Axis::shard);
  std::printf("pid %d\n", static_cast<int>(getpid()));
  std::fflush(stdout);
  session.barrier();
  if (session.rank() == 2) fail_as((*argv)[1], session);
  if (session.rank() == 3) {
    volatile bool forever = true;
    while (forever) continue;
  }
  double value = 0, workspace[8];
  const auto reduce = comm.all_reduce(&value, &value, DType::f64, 1, workspace);
  reduce->start();
  reduce->wait();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    step(&argc, &argv);
  } catch (const Error& error) {
    std::printf("not reached by a failing rank: %s\n", error.what());
  }
  return 0;
}
