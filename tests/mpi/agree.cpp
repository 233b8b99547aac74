// A failure on some ranks is the same message on all.
#include <gtest/gtest.h>

#include <new>
#include <string>

#include "tests/support/mpi_main.hpp"

namespace ztrain::agree_test {

using namespace ztrain::runtime;

namespace {

template <class Function>
std::string message_of(Function&& fn) {
  try {
    test::session().agree("testing", fn);
  } catch (const AgreedError& error) {
    return error.what();
  }
  return "none";
}

int rank() {
  return test::session().rank();
}

TEST(Agree, SuccessReturnsTheValue) {
  EXPECT_EQ(test::session().agree("testing", [] { return rank() * 10; }), rank() * 10);
  EXPECT_EQ(message_of([] {}), "none");
}

TEST(Agree, OneRankFailsAllSaySo) {
  EXPECT_EQ(message_of([] { REQUIRE(rank() != 2, "train.bin is missing"); }), "rank 2: train.bin is missing");
}

TEST(Agree, AllRanksFailingAlikeNeedNoRank) {
  EXPECT_EQ(message_of([] { fail("batch.micro must be positive"); }), "batch.micro must be positive");
}

TEST(Agree, EachDistinctMessageOnceFromTheLowestRank) {
  EXPECT_EQ(message_of([] {
              if (rank() >= 2) fail("disk full");
              if (rank() == 1) fail("not found");
            }),
            "rank 1: not found\nrank 2: disk full");
}

TEST(Agree, ForeignExceptionsSayWhatWasDone) {
  const std::string message = message_of([] {
    if (rank() == 3) throw std::bad_alloc();
  });
  EXPECT_EQ(message.find("rank 3: testing: "), 0u) << message;
}

TEST(Agree, NestedAgreementPassesThrough) {
  EXPECT_EQ(message_of([] { test::session().agree("inner", [] { REQUIRE(rank() != 1, "inner failure"); }); }),
            "rank 1: inner failure");
}

TEST(Agree, TheSessionGoesOnAfterwards) {
  EXPECT_EQ(message_of([] { fail("x"); }), "x");
  test::session().barrier();
  EXPECT_EQ(message_of([] {}), "none");
}

}  // namespace
}  // namespace ztrain::agree_test
