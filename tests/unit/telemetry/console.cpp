#include "telemetry/console.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/error.hpp"
#include "telemetry/allocation_count.hpp"

namespace ztrain::console_test {

using namespace ztrain::telemetry;

namespace {

/// What was written to a stream that is memory.
class Stream {
 public:
  Stream() : file_(open_memstream(&text_, &size_)) {}
  ~Stream() {
    std::fclose(file_);
    std::free(text_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  std::FILE* file() { return file_; }
  /// Since the last call.
  std::string taken() {
    std::fflush(file_);
    const std::string all(text_, size_);
    return all.substr(std::exchange(taken_, all.size()));
  }

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0, taken_ = 0;
  std::FILE* file_;
};

/// A console whose clock stands until it is moved.
class ConsoleTest : public testing::Test {
 protected:
  Outlet outlet(int columns) {
    Outlet o;
    o.lines = lines.file();
    o.progress = progress.file();
    o.columns = columns;
    o.now = [this] { return clock; };
    return o;
  }
  /// Looks every second until `clock` is `time`.
  void look_until(Console& console, double time) {
    while (clock < time) {
      clock += 1;
      console.look();
    }
  }
  /// What a terminal's line shows after the text was written to it.
  static std::string visible(const std::string& written) {
    const auto removed = written.rfind("\r\033[K");
    return removed == std::string::npos ? written : written.substr(removed + 4);
  }

  Stream lines, progress;
  double clock = 1000;
};

/// The outlet of a process whose stderr is this file, and whose terminal has that name.
Outlet outlet_on(int file, const char* terminal) {
  const int kept = dup(STDERR_FILENO);
  const char* const name = std::getenv("TERM");
  const std::optional<std::string> before = name ? std::optional<std::string>(name) : std::nullopt;
  setenv("TERM", terminal, 1);
  dup2(file, STDERR_FILENO);
  Outlet outlet = Outlet::of_process();
  dup2(kept, STDERR_FILENO);
  close(kept);
  before ? setenv("TERM", before->c_str(), 1) : unsetenv("TERM");
  return outlet;
}

TEST(OutletOfProcess, ATerminalHasItsColumnsUnlessItIsDumb) {
  const int controller = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_TRUE(controller >= 0 && grantpt(controller) == 0 && unlockpt(controller) == 0);
  const int terminal = open(ptsname(controller), O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  EXPECT_EQ(outlet_on(terminal, "xterm").columns, 80) << "it does not say how many";
  winsize size{};
  size.ws_col = 100;
  ASSERT_EQ(ioctl(terminal, TIOCSWINSZ, &size), 0);
  EXPECT_EQ(outlet_on(terminal, "xterm").columns, 100);
  EXPECT_EQ(outlet_on(terminal, "dumb").columns, 0);
  EXPECT_FALSE(outlet_on(terminal, "xterm").together) << "stdout is elsewhere";
  close(terminal);
  close(controller);
}

TEST(OutletOfProcess, AFileHasNoColumns) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  EXPECT_EQ(outlet_on(fileno(file.get()), "xterm").columns, 0);
  EXPECT_FALSE(outlet_on(fileno(file.get()), "xterm").together);
  EXPECT_TRUE(outlet_on(STDOUT_FILENO, "xterm").together);
}

TEST_F(ConsoleTest, WhatIsFastIsNotToldOf) {
  for (const int columns : {0, 80}) {
    Console console(outlet(columns));
    for (int step = 1; step < 100; ++step) {
      const Phase phase(console, "step", step);
      look_until(console, clock + 9);
      console.print("a line\n");
    }
    look_until(console, clock + 100);  // nothing is under way
    lines.taken();
    EXPECT_EQ(progress.taken(), "");
  }
}

TEST_F(ConsoleTest, ALogHasLinesAtGrowingIntervals) {
  Console console(outlet(0));
  const Phase phase(console, "step", 3, [] { return std::string("op 37 of 146, forward model.layers.2"); });
  std::string expected;
  for (const int seconds : {10, 30, 70}) {  // after 10, 20 and 40
    look_until(console, 1000 + seconds - 1);
    EXPECT_EQ(progress.taken(), "");
    look_until(console, 1000 + seconds);
    EXPECT_EQ(progress.taken(),
              "step 3: op 37 of 146, forward model.layers.2, " + std::to_string(seconds) + " s\n");
  }
  look_until(console, 1150);
  EXPECT_EQ(progress.taken(), "step 3: op 37 of 146, forward model.layers.2, 2m 30s\n");
  look_until(console, 1310);
  progress.taken();
  look_until(console, 1609);
  EXPECT_EQ(progress.taken(), "") << "the longest interval is 5 minutes";
  look_until(console, 1610);
  EXPECT_EQ(progress.taken(), "step 3: op 37 of 146, forward model.layers.2, 10m 10s\n");
  EXPECT_EQ(lines.taken(), "");
}

TEST_F(ConsoleTest, PhasesOfAKindShareTheInterval) {
  Console console(outlet(0));
  int told = 0;
  for (int step = 1; step <= 100; ++step) {
    const Phase phase(console, "step", step);
    look_until(console, clock + 12);
    console.print("the step's line\n");
    told += progress.taken().empty() ? 0 : 1;
  }
  EXPECT_EQ(told, 1) << "steps of 12 s have lines of their own";
  const Phase other(console, "evaluation");
  look_until(console, clock + 10);
  EXPECT_EQ(progress.taken(), "evaluation, 10 s\n");
}

TEST_F(ConsoleTest, ASecondStallIsToldOfAsTheFirst) {
  Console console(outlet(0));
  for (int stall = 1; stall <= 2; ++stall) {
    const Phase phase(console, "step", stall);
    look_until(console, clock + 31);
    EXPECT_EQ(progress.taken(),
              "step " + std::to_string(stall) + ", 10 s\nstep " + std::to_string(stall) + ", 30 s\n");
    for (int line = 0; line < 2; ++line) {  // the run goes on
      console.print("a step's line\n");
      clock += 1;
    }
    clock -= 1;
  }
}

TEST_F(ConsoleTest, ManyShortPhasesWithoutALineAreToldOf) {
  Console console(outlet(0));
  for (int step = 1; step <= 5; ++step) {
    const Phase phase(console, "step", step);
    look_until(console, clock + 3);
  }
  EXPECT_EQ(progress.taken(), "step 4, 1 s\n");
}

TEST_F(ConsoleTest, ATerminalHasOneLineThatIsGoneBeforeOthers) {
  Console console(outlet(80));
  std::string where = "op 1 of 9";
  const Phase phase(console, "step", 1, [&] { return where; });
  look_until(console, 1010);
  EXPECT_EQ(visible(progress.taken()), "step 1: op 1 of 9, 10 s");
  where = "op 2 of 9";
  look_until(console, 1011);
  const std::string again = progress.taken();
  EXPECT_EQ(again, "\r\033[Kstep 1: op 2 of 9, 11 s") << "rewritten each second";
  console.print("a line\n");
  EXPECT_EQ(progress.taken(), "\r\033[K");
  EXPECT_EQ(lines.taken(), "a line\n");
  look_until(console, 1020);
  EXPECT_EQ(progress.taken(), "") << "9 s after that line";
  look_until(console, 1021);
  EXPECT_EQ(visible(progress.taken()), "step 1: op 2 of 9, 21 s");
  console.print_error("an error\n");
  EXPECT_EQ(progress.taken(), "\r\033[Kan error\n");
}

TEST_F(ConsoleTest, TheLineIsGoneWhenTheConsoleIs) {
  auto console = std::make_unique<Console>(outlet(80));
  {
    const Phase phase(*console, "proving");
    look_until(*console, 1010);
  }
  progress.taken();
  console.reset();
  EXPECT_EQ(progress.taken(), "\r\033[K");
}

TEST_F(ConsoleTest, ALineFitsTheTerminalAndKeepsItsTime) {
  Console console(outlet(30));
  const Phase phase(console, "reading", [] { return std::string(100, 'x'); });
  look_until(console, 1010);
  EXPECT_EQ(visible(progress.taken()), "reading: xxxxxxxxxx ..., 10 s");
}

TEST_F(ConsoleTest, TheInnermostPhaseIsToldOf) {
  Console console(outlet(0));
  const Phase outer(console, "preparing");
  {
    Phase inner(console, "reading the weights");
    inner.at("1 of 4 GiB");
    look_until(console, 1010);
    EXPECT_EQ(progress.taken(), "reading the weights: 1 of 4 GiB, 10 s\n");
  }
  look_until(console, 1020);
  EXPECT_EQ(progress.taken(), "preparing, 20 s\n");
}

TEST_F(ConsoleTest, AnOuterPhaseMayEndFirst) {
  Console console(outlet(0));
  std::optional<Phase> outer(std::in_place, console, "outer");
  const Phase inner(console, "inner");
  outer.reset();
  look_until(console, 1010);
  EXPECT_EQ(progress.taken(), "inner, 10 s\n");
}

TEST_F(ConsoleTest, NothingComesBetweenThePartsOfALine) {
  for (const bool together : {true, false}) {
    clock = 1000;
    Outlet o = outlet(0);
    o.together = together;
    Console console(o);
    const Phase phase(console, "token", 7);
    console.print("half a ");
    look_until(console, 1010);
    EXPECT_EQ(progress.taken(), together ? "" : "token 7, 10 s\n");
    console.print("line\n");
    look_until(console, 1030);
    EXPECT_EQ(progress.taken(), together ? "token 7, 20 s\n" : "token 7, 30 s\n");
    EXPECT_EQ(lines.taken(), "half a line\n");
  }
}

TEST_F(ConsoleTest, OtherRanksSayNothing) {
  Console console;
  Phase phase(console, "step", 1, [] { return std::string("op 1 of 2"); });
  phase.at("anywhere");
  console.print("a line\n");
  console.print_error("an error\n");
  console.look();
  console.clear();
}

TEST_F(ConsoleTest, PhasesDoNotAllocateNorDoesTheThread) {
  Outlet o = outlet(0);
  o.first = o.between_looks = 1e-3;
  std::atomic<int> reads = 0;
  o.now = [&] { return 1e-3 * ++reads; };
  Console console(o);
  const ConsoleThread thread(console);
  const AllocationCount count;
  for (int step = 1; step <= 1000; ++step) {
    Phase phase(console, "step", step, [this] { return std::string(100, lines.file() ? 'x' : 'y'); });
    phase.at("a place whose name is longer than what a string has room for in itself");
    if (step % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(count.calls(), 0);
}

TEST_F(ConsoleTest, AThreadLooks) {
  Outlet o = outlet(0);
  o.first = o.between_looks = 1e-3;
  o.now = {};
  Console console(o);
  const ConsoleThread thread(console);
  std::atomic<bool> asked = false;
  const Phase phase(console, "step", 1, [&] { return asked = true, std::string("op 1 of 2"); });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!asked && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(asked);
}

TEST_F(ConsoleTest, NamesDoNotReachTheTerminalAsTheyAre) {
  Console console(outlet(0));
  console.print("data \x1b[31mred\n");
  console.print_error("no \x1b[31mred\n");
  console.print_bytes("a model's \xff\x1b[0m");
  EXPECT_EQ(lines.taken(), "data \\x1b[31mred\na model's \xff\x1b[0m");
  EXPECT_EQ(progress.taken(), "no \\x1b[31mred\n");
}

TEST_F(ConsoleTest, WhatAModelSaysCommandsNoTerminal) {
  Outlet o = outlet(0);
  o.watched = true;
  Console console(o);
  for (const char* part : {"a\x1b[2J\tb\n", "\xc3", "\xa4\x7f"}) console.print_bytes(part);
  EXPECT_EQ(lines.taken(), "a\\x1b[2J\tb\n\xc3\xa4\\x7f");
}

TEST_F(ConsoleTest, AFullDiskIsToldOf) {
  std::FILE* const full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  Outlet o = outlet(0);
  o.lines = full;
  {
    Console console(o);
    console.print_error("still fine\n");
    EXPECT_EQ(console.unwritten(), "");
    console.print("a line\n");
    EXPECT_EQ(console.unwritten(),
              "stdout: cannot write all that was to be printed: No space left on device");
  }
  std::fclose(full);
}

}  // namespace
}  // namespace ztrain::console_test
