// What ranks that hang say of each other, from places that the tests write.

#include "telemetry/place.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/support/error_of.hpp"

namespace ztrain::place_test {
namespace {

using telemetry::Hang;
using telemetry::Place;

Place at_op(int rank, std::int64_t sequence, const std::string& at) {
  return {
      rank, "n" + std::to_string(rank / 2), 100 + rank, 1000, "step 12", "train step", 7, sequence, at, {},
      {}};
}

Place waits(int rank, std::int64_t sequence, std::int64_t other, const std::string& what,
            std::vector<int> members) {
  Place place = at_op(rank, sequence, "op 20 of 90, forward layer 1");
  place.waits_for = {other, what, std::move(members)};
  return place;
}

class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("ztrain-places-" + std::to_string(getpid()))) {
    std::filesystem::create_directory(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

TEST(Place, IsReadAsItWasWritten) {
  const Folder folder;
  Place place = waits(1, 1234567890123, 77, "gather layer 1", {0, 1, 3});
  place.last = {"76 forward layer 0", "77 gather layer 1"};
  write_place(folder.path(), place);
  std::ofstream(folder.path() + "/rank_2.json") << "{\"rank\": 2";
  for (const int other : {0, 2, 3}) EXPECT_FALSE(telemetry::read_place(folder.path(), other));
  const auto read = telemetry::read_place(folder.path(), 1);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->sequence, place.sequence);
  EXPECT_EQ(read->fingerprint, place.fingerprint);
  EXPECT_EQ(read->waits_for.ranks, place.waits_for.ranks);
  EXPECT_EQ(read->waits_for.what, place.waits_for.what);
  EXPECT_EQ(read->last, place.last);
  EXPECT_EQ(read->phase, place.phase);
  EXPECT_NE(test::error_of([&] { write_place(folder.path() + "/none", place); }), "no error");
  telemetry::remove_places(folder.path());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Place, NamesWhoHasNotComeToACommunication) {
  // 0 and 2 have begun op 30 and wait for its end; 1 is before it, 3 behind it. 4 is of another group.
  Hang hang{{waits(0, 33, 30, "gather layer 1", {0, 1, 2, 3}), at_op(1, 29, "op 30 of 90, backward layer 7"),
             waits(2, 33, 30, "gather layer 1", {0, 1, 2, 3}), at_op(3, 34, "op 35 of 90, forward layer 2"),
             at_op(4, 2, "op 3 of 90, forward layer 0")},
            900};
  const std::string text = verdict(hang);
  EXPECT_TRUE(
      text.starts_with("ranks 0, 2 wait in gather layer 1 for:\n"
                       "  rank 1 (n0), which has not come to it: step 12, op 30 of 90, backward layer 7\n"
                       "where the ranks are:\n"))
      << text;
  EXPECT_NE(text.find("  step 12, op 3 of 90, forward layer 0: 4\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  step 12, op 20 of 90, forward layer 1: 0, 2\n"), std::string::npos) << text;
}

TEST(Place, ARankThatIsThroughWithTheStepHasBegunAllOfIt) {
  Hang hang{{waits(0, 89, 88, "norm", {0, 1, 2}), at_op(1, 89, ""), at_op(2, 20, "")}, 900};
  hang.known[1]->phase = "hearing from all ranks behind step";
  hang.known[2]->phase = "reading the data of step";
  const std::string text = verdict(hang);
  EXPECT_TRUE(
      text.starts_with("rank 0 waits in norm for:\n"
                       "  rank 2 (n1), which has not come to it: reading the data of step\nwhere"))
      << text;
}

TEST(Place, ARankAtTheCommunicationMayWaitBeforeIt) {
  Hang hang{{waits(0, 31, 30, "gather layer 1", {0, 1}), waits(1, 30, 28, "reduce layer 9", {1, 2}), {}},
            900};
  const std::string text = verdict(hang);
  EXPECT_NE(text.find("rank 0 waits in gather layer 1 for:\n  rank 1 (n0), which has not come to it"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("rank 1 waits in reduce layer 9 for:\n  rank 2 gives no answer\n"), std::string::npos)
      << text;
}

TEST(Place, StagesOfAPipelineCountOtherOps) {
  // 0 and 1 are one stage, 2 and 3 the next, whose Program has the same name. 0 waits for 1, 2 for a message
  // of 0, whose sequence says nothing of it; 3 waits for nobody.
  Hang hang{{waits(0, 33, 30, "gather layer 1", {0, 1}), at_op(1, 29, "op 30 of 90, backward layer 7"),
             waits(2, 12, 10, "receive of layer 4", {0, 2}), at_op(3, 10, "op 11 of 70, forward layer 4")},
            900};
  hang.known[2]->fingerprint = hang.known[3]->fingerprint = 8;
  const std::string text = verdict(hang);
  EXPECT_NE(text.find("rank 0 waits in gather layer 1 for:\n  rank 1 (n0), which has not come to it: "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("rank 2 waits in receive of layer 4 for:\n"
                      "  rank 0 (n0), which computes another part of the model: step 12, op 20 of 90, "),
            std::string::npos)
      << text;
}

TEST(Place, SaysOfWhomThereIsNoAnswer) {
  Hang hang{{waits(0, 33, 30, "gather layer 1", {0, 1}), at_op(1, 50, "")}, 900};
  EXPECT_TRUE(hang.all_have_answered());
  hang.known[1]->written = 0;
  EXPECT_FALSE(hang.all_have_answered());
  EXPECT_NE(verdict(hang).find("for:\n  rank 1 (n0) gives no answer: its process is stopped, or its node"),
            std::string::npos)
      << verdict(hang);
}

TEST(Place, OneRankSpeaks) {
  const Folder folder;
  const telemetry::PlaceFolder places{folder.path(), 2};
  EXPECT_NE(places.ask(at_op(1, 5, ""), 900, 0), "") << "the other has not answered";
  write_place(folder.path(), at_op(0, 4, ""));
  EXPECT_EQ(places.ask(at_op(1, 5, ""), 900, 60), "");
  EXPECT_NE(places.ask(at_op(0, 5, ""), 900, 60), "");
  const telemetry::PlaceFolder more{folder.path(), 3};
  EXPECT_EQ(more.ask(at_op(1, 5, ""), 900, 1000), "") << "which does not wait for the third";
}

TEST(Place, AsksTheSystemForAProcess) {
  EXPECT_EQ(telemetry::state_of_process(getpid()), "");
  const int child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  kill(child, SIGSTOP);
  while (telemetry::state_of_process(child).empty()) usleep(1000);
  EXPECT_EQ(telemetry::state_of_process(child), "is stopped");
  kill(child, SIGKILL);
  while (telemetry::state_of_process(child) != "is gone") usleep(1000);
}

}  // namespace
}  // namespace ztrain::place_test
