// Schedules that are given as tables: what PyTorch writes is read, and what no ranks could follow is refused.

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "program/schedules/csv.hpp"
#include "tests/support/small_job.hpp"

namespace ztrain::program::schedule_files_test {
namespace {

/// As PyTorch writes one of its own.
std::string text_of(const Schedule& schedule, int ranks, int micros) {
  const StageMap map = stage_map(schedule, ranks);
  std::string text;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const Turn& turn :
         schedule.turns({.micro_batches = micros, .ranks = ranks, .rank = rank, .chunks = schedule.chunks}))
      text += fmt::format("{}{}{},", map.stage_of(rank, turn.chunk),
                          "FBIW"[static_cast<std::size_t>(turn.kind)], turn.micro);
    text.back() = '\n';
  }
  return text;
}

TEST(ScheduleFiles, AreWhatTheyWereWrittenFrom) {
  for (const char* name :
       {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe-v"})
    for (const int ranks : {2, 3, 8})
      for (const int micros : {1, 5, 16}) {
        const Schedule own = find_schedule(name);
        const Schedule read = schedule_from_csv(text_of(own, ranks, micros), "own.csv");
        EXPECT_EQ(read.name, "own.csv");
        EXPECT_EQ(read.ranks, ranks);
        EXPECT_EQ(read.micro_batches, micros);
        EXPECT_EQ(read.chunks, own.chunks);
        EXPECT_EQ(read.vee, own.vee) << name;
        for (int rank = 0; rank < ranks; ++rank) {
          const ScheduleInput at{.micro_batches = micros, .ranks = ranks, .rank = rank, .chunks = own.chunks};
          EXPECT_EQ(read.turns(at), own.turns(at)) << name << ", rank " << rank;
        }
      }
}

std::vector<Turn> second_rank(std::string_view text) {
  const Schedule read = schedule_from_csv(text, "t.csv");
  return read.turns({.micro_batches = read.micro_batches, .ranks = 2, .rank = 1, .chunks = read.chunks});
}

TEST(ScheduleFiles, MayHaveWaitingAndCommunicationAndOlderLetters) {
  using enum TurnKind;
  const std::vector<Turn> expected{{forward, 0, 0}, {backward, 0, 0}, {forward, 0, 1}, {backward, 0, 1}};
  EXPECT_EQ(second_rank("0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n"), expected);
  EXPECT_EQ(second_rank("0F0, \"0F1\",0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n\r\n"), expected);
  EXPECT_EQ(second_rank("\xEF\xBB\xBF"
                        "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1"),
            expected)
      << "with the mark of UTF-8 that spreadsheets write";
  EXPECT_EQ(second_rank("0UNSHARD,0F0,0SEND_F0,0F1,0B0,0B1,0REDUCE_GRAD\n1RECV_F0,1F0,1B0,1SEND_B0,1F1,1B1"),
            expected);
  EXPECT_EQ(second_rank("0F0,0F1,0B0,0B1\n1F0,(1B0;1F1)OVERLAP_F_B,1B1"), expected);
  const std::vector<Turn> halves{
      {forward, 0, 0}, {backward_inputs, 0, 0}, {backward_weights, 0, 0}, {forward, 0, 1}, {backward, 0, 1}};
  EXPECT_EQ(second_rank("0F0,0F1,0B0,0B1\n1F0,1I0,1W0,1F1,1B1"), halves);
  EXPECT_EQ(second_rank("0F0,0F1,0B0,0B1\n1F0,1B0,1W0,1F1,1B1"), halves) << "B with a W behind it";
}

TEST(ScheduleFiles, ThatNoRanksCouldFollowAreRefused) {
  struct Bad {
    const char* text;
    const char* said;
  };
  for (const Bad& bad : {
           Bad{"", "bad.csv: has no actions"},
           {"\n,,\n", "has no actions"},
           {"0F0,0X0\n1F0,1B0", "line 1: '0X0' is no action"},
           {"0F0,0B0\n\n1F0,1B", "line 3: '1B' is no action"},
           {"0F0,0B0\n1F0,-1B0", "'-1B0' is no action"},
           {"0F0,0B99999999999\n1F0,1B0", "is no action"},
           {"0F0,0B0\n1F0,(1B0", "is no action"},
           {"0F0,0B0\n1F0,(1B0)OVERLAP", "is no action"},
           {"0F0,0B0\n1F0,1B0\n2F0,2B0,3F0,3B0", "has 4 stages on 3 ranks"},
           {"1F0,1B0\n0F0,0B0", "line 1: stage 1 is on rank 0: stages go round"},
           {"0F0,0B0,1F0,1B0\n2F0,2B0,3F0,3B0", "is on rank"},
           {"0F0,0F1,0B0\n1F0,1B0,1F1,1B1", "line 1: stage 0 of micro-batch 1 is not done"},
           {"0B0,0F0\n1F0,1B0", "line 1: backward of stage 0, micro-batch 0 comes too early"},
           {"0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1", "rank 0 of the pipeline waits at its backward of stage 0"},
           {"0F0,2F0,2B0,0B0\n1F0,3B0,3F0,1B0", "line 2: backward of stage 3, micro-batch 0 comes too early"},
           {"0F0,2F0,2B0,0B0\n3F0,1F0,3B0,1B0",
            "line 2: forward of stage 3, micro-batch 0 comes before that of "
            "the stage it continues"},
           {"0F0,3B0,3F0,0B0\n1F0,2F0,2B0,1B0", "line 1: backward of stage 3, micro-batch 0"},
       }) {
    const std::string said = test::refusal([&] { schedule_from_csv(bad.text, "bad.csv"); });
    EXPECT_NE(said.find(bad.said), std::string::npos) << bad.text << "\n" << said;
    EXPECT_TRUE(said.starts_with("bad.csv")) << said;
  }
}

}  // namespace
}  // namespace ztrain::program::schedule_files_test
