// main of the tests that run under mpirun. Rank 0 prints as usual, the others only failures. After each test
// the ranks wait for each other, and a rank that failed ends the job when the others do not come: they hang
// in what it left.
#include "tests/support/mpi_main.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "runtime/session/mpi_check.hpp"
#include "tests/support/one_source.hpp"

namespace ztrain::test {
namespace {

const runtime::Session*& session_pointer() {
  static const runtime::Session* pointer = nullptr;
  return pointer;
}

class RankListener : public testing::EmptyTestEventListener {
 public:
  explicit RankListener(const runtime::Session& session) : session_(session) {}

  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (session_.rank() == 0 || !result.failed()) return;
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", session_.rank(),
                 result.file_name() ? result.file_name() : "?", result.line_number(), result.message());
    std::fflush(stderr);
  }

  void OnTestEnd(const testing::TestInfo& info) override {
    MPI_Request request = MPI_REQUEST_NULL;
    runtime::check_mpi(MPI_Ibarrier(session_.world(), &request), "MPI_Ibarrier");
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(15);
    for (int done = 0; done == 0;) {
      runtime::check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      std::this_thread::yield();
      if (done == 0 && info.result()->Failed() && std::chrono::steady_clock::now() > deadline)
        session_.abort_all(std::string("the other ranks did not finish ") + info.name());
    }
  }

 private:
  const runtime::Session& session_;
};

}  // namespace

const runtime::Session& session() {
  return *session_pointer();
}

}  // namespace ztrain::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  ztrain::test::run_only_one_source(argc, argv);
  const ztrain::runtime::Session session(&argc, &argv);
  ztrain::test::session_pointer() = &session;
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (session.rank() != 0)
    std::unique_ptr<testing::TestEventListener>(listeners.Release(listeners.default_result_printer()));
  auto listener = std::make_unique<ztrain::test::RankListener>(session);
  listeners.Append(listener.get());
  const int mine = RUN_ALL_TESTS();
  listeners.Release(listener.get());
  int worst = 0;
  ztrain::runtime::check_mpi(MPI_Allreduce(&mine, &worst, 1, MPI_INT, MPI_MAX, session.world()),
                             "MPI_Allreduce");
  return worst;
}
