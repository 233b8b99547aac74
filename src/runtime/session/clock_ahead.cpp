#include "runtime/session/clock_ahead.hpp"

#include <limits>

#include "runtime/session/mpi_check.hpp"

namespace ztrain::runtime {
namespace {

constexpr int questions = 8, tag = 77;

double receive(MPI_Comm comm, int from) {
  double value = 0;
  check_mpi(MPI_Recv(&value, 1, MPI_DOUBLE, from, tag, comm, MPI_STATUS_IGNORE), "MPI_Recv");
  return value;
}

void send(MPI_Comm comm, int to, double value) {
  check_mpi(MPI_Send(&value, 1, MPI_DOUBLE, to, tag, comm), "MPI_Send");
}

/// Rank 0 asks; the others answer.
double ask(MPI_Comm comm, int rank, const std::function<double()>& clock) {
  double ahead = 0, soonest = std::numeric_limits<double>::infinity();
  for (int question = 0; question < questions; ++question) {
    const double asked = clock();
    send(comm, rank, asked);
    const double theirs = receive(comm, rank), answered = clock();
    if (answered - asked >= soonest) continue;
    soonest = answered - asked;
    ahead = theirs - (asked + answered) / 2;
  }
  return ahead;
}

}  // namespace

double clock_ahead(const Session& session, const std::function<double()>& clock) {
  const MPI_Comm comm = session.world();
  if (session.rank() == 0) {
    for (int rank = 1; rank < session.size(); ++rank) send(comm, rank, ask(comm, rank, clock));
    return 0;
  }
  for (int question = 0; question < questions; ++question) {
    receive(comm, 0);
    send(comm, 0, clock());
  }
  return receive(comm, 0);
}

}  // namespace ztrain::runtime
