// The verdict at the end of a run, when each part of its steps in turn takes the longest.
#include "telemetry/verdict.hpp"

#include <gtest/gtest.h>

namespace ztrain::telemetry::verdict_test {
namespace {

/// A step of 10 s: 4 of computing, and 1 of each other part that is timed; the host has the rest.
PhaseSeconds step() {
  PhaseSeconds s;
  s.forward = 1, s.backward = 2, s.optimizer = 1;
  s.gather = s.reduce = 0.5;
  s.exposed_communication = 1, s.exposed_messages = 0.5, s.exposed_drives = 0.5;
  s.fetch = s.evict = 0.25;
  s.data = 1, s.save = 1, s.total = 10;
  return s;
}

std::string verdict_of(const PhaseSeconds& step, bool host_drives = true) {
  Verdict verdict(host_drives);
  PhaseSeconds warm_up = step;
  warm_up.data = warm_up.total = 1000;
  verdict.add(warm_up);
  verdict.add(step);
  return verdict.text();
}

TEST(Verdict, NamesWhatTakesLongest) {
  EXPECT_EQ(
      verdict_of(step()),
      "bound by computing: 36% of 11 s; the host 18%, collectives 14%, copies to and from other memory 9%, "
      "reading data 9%, saving 9%, messages between pipeline stages 5%");
  const auto slowed = [](auto change, bool host_drives = true) {
    PhaseSeconds s = step();
    change(s);
    const std::string text = verdict_of(s, host_drives);
    return text.substr(0, text.find(':'));
  };
  EXPECT_EQ(slowed([](auto& s) { s.data += 9, s.total += 9; }), "bound by reading data");
  EXPECT_EQ(slowed([](auto& s) { s.save += 9; }), "bound by saving");
  EXPECT_EQ(slowed([](auto& s) { s.total += 9; }), "bound by the host");
  EXPECT_EQ(slowed([](auto& s) { *s.exposed_communication += 9, s.total += 9; }), "bound by collectives");
  EXPECT_EQ(slowed([](auto& s) { *s.exposed_communication += 9, *s.exposed_messages += 9, s.total += 9; }),
            "bound by messages between pipeline stages");
  EXPECT_EQ(slowed([](auto& s) { *s.exposed_drives += 9, s.total += 9; }),
            "bound by copies to and from other memory");
  EXPECT_EQ(slowed([](auto& s) { *s.gather += 9, s.total += 9; }), "bound by collectives");
  EXPECT_EQ(slowed([](auto& s) { *s.gather += 9; }, false), "bound by computing") << "behind what computes";
}

TEST(Verdict, SaysNothingOfStepsThatAreNotTimed) {
  EXPECT_EQ(Verdict(true).text(), "");
  PhaseSeconds graph;
  graph.total = 10;
  EXPECT_EQ(verdict_of(graph), "");
  Verdict one(true);
  one.add(step());
  EXPECT_EQ(one.text(), "") << "the first step warms up";
}

}  // namespace
}  // namespace ztrain::telemetry::verdict_test
