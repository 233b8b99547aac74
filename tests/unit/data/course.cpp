// What a run draws when files, weights or the batch change while it is under way.
#include "data/course.hpp"

#include <map>
#include <set>

#include "data/datasets.hpp"
#include "tests/unit/data/data_files.hpp"

namespace ztrain::data::course_test {
namespace {

/// A source with parts of so many rows, and the number of rows drawn when each joined.
SourceCourse source_of(const std::vector<std::pair<std::int64_t, std::int64_t>>& parts) {
  SourceCourse source;
  for (const auto& [rows, from] : parts) source.parts.push_back({{}, rows, 0, from});
  return source;
}

TEST(RowOrder, DrawsNoRowTwiceInAnEpochWhateverJoinsIt) {
  using Parts = std::vector<std::pair<std::int64_t, std::int64_t>>;
  const std::vector<Parts> histories{{{10, 0}},
                                     {{10, 0}, {7, 4}},
                                     {{10, 0}, {5, 10}},
                                     {{10, 0}, {6, 0}},
                                     {{10, 0}, {3, 13}, {4, 13}, {2, 40}},
                                     {{4, 0}, {1, 3}, {1, 5}, {20, 6}, {3, 7}}};
  for (const Parts& history : histories) {
    SCOPED_TRACE(testing::Message() << history.size() << " parts, the last at " << history.back().second);
    std::int64_t rows = 0, epoch = 0;
    std::set<std::int64_t> seen;
    std::size_t joined = 0;
    for (std::int64_t number = 0; number < 120; ++number) {
      for (; joined < history.size() && history[joined].second == number; ++joined)
        rows += history[joined].first;
      // A run that goes on draws what the run before the next part would draw.
      const RowOrder order(
          source_of({history.begin(), history.begin() + static_cast<std::ptrdiff_t>(joined)}), 42);
      if (std::ssize(seen) == rows) seen.clear(), ++epoch;
      const std::int64_t row = order(number);
      EXPECT_TRUE(row >= 0 && row < rows) << number;
      EXPECT_TRUE(seen.insert(row).second) << "row " << row << " comes again at " << number;
      const RowOrder::Position at = order.position(number + 1);
      EXPECT_EQ(at.epoch, epoch) << number;
      EXPECT_EQ(at.seen, std::ssize(seen)) << number;
    }
    EXPECT_GT(epoch, 1);
  }
}

TEST(RowOrder, MixesNewRowsWithThoseThatAreLeft) {
  const RowOrder order(source_of({{50, 0}, {50, 20}}), 7);
  std::int64_t changes = 0;
  for (std::int64_t number = 21; number < 100; ++number)
    changes += (order(number) < 50) != (order(number - 1) < 50);
  EXPECT_GT(changes, 20) << "old rows and new rows alternate by chance";
}

using Courses = Data;

/// The rows that samples [from, to) of a run draw, by source, with the numbers of their first tokens.
std::vector<std::vector<std::int64_t>> drawn(const config::Deck& deck, const Datasets& sets,
                                             const Course& course, std::int64_t from, std::int64_t to) {
  const Sampler sampler = make_sampler(deck, sets, course);
  std::vector<std::vector<std::int64_t>> rows(sets.train.size());
  for (std::int64_t i = from; i < to; ++i) {
    const Sampler::Draw draw = sampler.draw(i);
    rows[draw.source].push_back(draw.row);
  }
  return rows;
}

TEST_F(Courses, FilesThatAreAddedGoOnBehindWhatWasSeen) {
  write_ids<std::uint16_t>("b.bin", count_up(0, 41));
  const auto now = [&] {
    return deck(at("*.bin"), {"--model.vocab_size=1000", "--data.validation_fraction=0.2"});
  };
  const Datasets before = open_datasets(now());
  const Course saved = course_of(before.train);
  const std::int64_t old_rows = saved.rows(), seen = 3;
  // Its name comes first, and it would be first in a new run.
  write_ids<std::uint16_t>("a.bin", count_up(500, 541));
  const Datasets plain = open_datasets(now());
  EXPECT_EQ(source_that_goes_on(saved, plain.train[0]), -1);
  const FileLists lists = files_as_in(saved, plain.train);
  EXPECT_EQ(lists, (FileLists{{{"b.bin"}, {"a.bin"}}}));
  const Datasets sets = open_datasets(now(), hear_nothing, lists);
  EXPECT_EQ(source_that_goes_on(saved, sets.train[0]), 0);
  EXPECT_EQ(identity_of(sets).validation, identity_of(before).validation)
      << "it stays what is held out of b.bin";
  const Course course = next_course(saved, now(), seen, now(), sets.train);
  ASSERT_EQ(course.rows(), old_rows + 10) << "nothing is held out of a.bin";
  const auto first = drawn(now(), before, saved, 0, seen)[0],
             rest = drawn(now(), sets, course, seen, course.rows())[0];
  std::set<std::int64_t> all(first.begin(), first.end());
  all.insert(rest.begin(), rest.end());
  EXPECT_EQ(std::ssize(all), course.rows()) << "one epoch has each row once";
  // Row old_rows is the first of a.bin.
  Batch batch(4);
  sets.train[0].rows->fill(old_rows, row_of(batch.view(), 0, 4));
  EXPECT_EQ(batch.tokens, count_up(500, 504));
  // The next checkpoint has the course, and a run that goes on from it finds the same data.
  EXPECT_EQ(files_as_in(course, plain.train), lists);
  const Course again = next_course(course, now(), 5, now(), sets.train);
  EXPECT_EQ(drawn(now(), sets, again, 5, 60), drawn(now(), sets, course, 5, 60));
}

TEST_F(Courses, SourcesOfAMixtureGoOnEachByItself) {
  for (const char* name : {"a.bin", "b.bin", "c.bin"})
    write_ids<std::uint16_t>(name, count_up(name[0], name[0] + 101));
  const auto mixture = [&](const std::string& files, const std::string& weights,
                           const std::string& seed = "7") {
    return deck(files, {"--data.weights=" + weights, "--model.vocab_size=1000",
                        "--data.validation_fraction=0", "--run.seed=" + seed});
  };
  const std::string two = at("a.bin") + "," + at("b.bin"), three = two + "," + at("c.bin");
  const config::Deck before = mixture(two, "[3, 1]"), now = mixture(three, "[1, 2, 1]");
  const Datasets old = open_datasets(before), sets = open_datasets(now);
  const Course saved = course_of(old.train), course = next_course(saved, before, 30, now, sets.train);
  auto rows = drawn(before, old, saved, 0, 30);
  rows.resize(3);
  EXPECT_EQ(course.sources[0].drawn, std::ssize(rows[0]));
  const auto more = drawn(now, sets, course, 30, 62);
  for (std::size_t s = 0; s < 3; ++s) {
    rows[s].insert(rows[s].end(), more[s].begin(), more[s].end());
    const auto epoch = std::min<std::size_t>(rows[s].size(), 25);
    EXPECT_EQ(
        std::set<std::int64_t>(rows[s].begin(), rows[s].begin() + static_cast<std::ptrdiff_t>(epoch)).size(),
        epoch)
        << "source " << s << " repeats a row of its epoch";
  }
  EXPECT_EQ(std::ssize(more[1]), 16) << "the new weights hold from there on";
  // With the same deck nothing changes, and with another seed all begins anew.
  EXPECT_EQ(next_course(saved, before, 30, before, old.train).from, 0);
  const Course anew = next_course(saved, before, 30, mixture(two, "[3, 1]", "8"), old.train);
  EXPECT_EQ(anew.from, 30);
  EXPECT_EQ(anew.sources[0].drawn, 0);
}

TEST_F(Courses, OtherRowsOrOtherContentDoNotGoOn) {
  write_ids<std::uint16_t>("a.bin", count_up(0, 200));
  const std::vector<std::string> words{"--model.vocab_size=1000", "--data.validation_fraction=0"};
  const Course saved = course_of(open_datasets(deck(at("a.bin"), words)).train);
  const auto goes_on = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return source_that_goes_on(saved, open_datasets(deck(at("a.bin"), more)).train[0]);
  };
  EXPECT_EQ(goes_on({}), 0);
  EXPECT_EQ(goes_on({"--data.sequence=8"}), -1);
  EXPECT_EQ(goes_on({"--data.validation_fraction=0.1"}), -1);
  write_ids<std::uint16_t>("a.bin", count_up(1, 201));
  EXPECT_EQ(goes_on({}), -1);
}

}  // namespace
}  // namespace ztrain::data::course_test
