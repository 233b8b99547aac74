#include "runner.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <hdf5.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "case.hpp"
#include "judge.hpp"

namespace ztrain::damaged_files {
namespace {

namespace fs = std::filesystem;

constexpr double longest_case = 10;           ///< seconds of its processor time
constexpr double longest_wait = 60;           ///< seconds of the clock: on a busy machine most cases wait
constexpr std::uint64_t cases_a_child = 500;  ///< a child's memory grows by what libraries never give back
constexpr rlim_t most_memory = rlim_t{6} << 30, largest_file = rlim_t{256} << 20;  ///< bytes

/// What the parent sees of a child at any time.
struct Shared {
  std::atomic<std::uint64_t> seed, accepted, refused, slowest_seed;
  std::atomic<double> began, cpu_began, slowest;
};

double seconds_of(clockid_t clock) {
  timespec t{};
  return ::clock_gettime(clock, &t) == 0
             ? static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec)
             : 0;
}

double cpu_seconds_of(pid_t child) {
  clockid_t clock{};
  return ::clock_getcpuclockid(child, &clock) == 0 ? seconds_of(clock) : 0;
}

/// 'R' where it runs or could.
char state_of(pid_t child) {
  std::ifstream file(fmt::format("/proc/{}/stat", child));
  std::string text;
  std::getline(file, text);
  const std::size_t after = text.rfind(") ");
  return after == std::string::npos ? '?' : text[after + 2];
}

const Subject& subject_of(Random& random, const std::string& given) {
  std::size_t all = 0;
  for (const Subject& s : subjects()) {
    if (given == s.name) return s;
    all += s.weight;
  }
  REQUIRE(given.empty(), "there is no subject '{}'", given);
  std::size_t drawn = random.below(all);
  for (const Subject& s : subjects()) {
    if (drawn < s.weight) return s;
    drawn -= s.weight;
  }
  fail("unreachable");
}

std::string story_of(const std::vector<std::string>& changes, const std::vector<Outcome>& outcomes) {
  std::string text;
  for (const std::string& change : changes) text += "  changed: " + change.substr(0, 300) + "\n";
  for (const Outcome& o : outcomes)
    text += fmt::format("  {}: {}\n", text_of(o.words).substr(0, 300), o.accepted ? "accepted" : "refused");
  return text;
}

class Runner {
 public:
  explicit Runner(const Plan& plan)
      : plan_(plan),
        seeds_(plan.folder / "seeds"),
        case_(plan.folder / "case"),
        findings_(plan.folder / "findings"),
        shared_(static_cast<Shared*>(
            ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    REQUIRE(shared_ != MAP_FAILED, "no memory to share");
    new (shared_) Shared{};
  }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  ~Runner() { ::munmap(shared_, sizeof(Shared)); }

  Report run() {
    in_child([&](const runtime::Session& session) { make_sound(session); });
    for (std::uint64_t next = plan_.first; next <= plan_.last;) {
      const std::uint64_t end = std::min(plan_.last, next + cases_a_child - 1);
      shared_->seed = next;
      const bool whole = in_child([&](const runtime::Session& session) {
        for (std::uint64_t seed = next; seed <= end; ++seed) run_case(session, seed);
      });
      next = whole ? end + 1 : shared_->seed + 1;
    }
    return report();
  }

 private:
  /// Runs work in a new process. False: it died in a case, of which a finding tells.
  template <class Work>
  bool in_child(Work work) {
    begin_case(shared_->seed);
    const pid_t child = ::fork();
    REQUIRE(child >= 0, "no process: {}", std::strerror(errno));
    if (child == 0) {
      be_child(work);
      std::_Exit(0);
    }
    int status = 0;
    const std::string hung = wait_for(child, status);
    if (hung.empty() && WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    std::string wrong = hung;
    if (hung.empty() && WIFSIGNALED(status))
      wrong = fmt::format("ends with signal {}: {}", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
    // By its watchdog, for instance, which is a refusal.
    if (wrong.empty()) wrong = wrong_in_refusal(capture_.err(), case_, {});
    const std::string said = capture_.err();
    REQUIRE(shared_->seed > 0, "the test's sound files are not accepted: {}", wrong + "\n" + said);
    if (!wrong.empty()) note(shared_->seed, {wrong, said}, read_story());
    return false;
  }

  template <class Work>
  void be_child(Work work) {
    for (const auto& [what, most] :
         {std::pair(RLIMIT_FSIZE, largest_file), {RLIMIT_AS, most_memory}, {RLIMIT_CORE, rlim_t{0}}}) {
      const rlimit limit{most, most};
#ifdef __SANITIZE_ADDRESS__
      if (what == RLIMIT_AS) continue;  // which maps terabytes
#endif
      ::setrlimit(what, &limit);
    }
    ::signal(SIGXFSZ, SIG_IGN);
    capture_.take_over();
    try {
      const runtime::Session session(nullptr, nullptr);
      work(session);
    } catch (const std::exception& e) {
      std::fprintf(stderr, "the test's command line: %s\n", e.what());
      std::fflush(nullptr);
      std::_Exit(3);
    }
  }

  /// Why it had to be killed; "" when it ended by itself.
  std::string wait_for(pid_t child, int& status) const {
    while (::waitpid(child, &status, WNOHANG) == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const bool busy = cpu_seconds_of(child) - shared_->cpu_began > longest_case;
      // A process that the machine has no time for is no process that hangs.
      const bool waits = now() - shared_->began > longest_wait && state_of(child) != 'R';
      if (!busy && !waits) continue;
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return busy ? "computes for more than 10 s" : "waits for more than a minute";
    }
    return "";
  }

  void make_sound(const runtime::Session& session) {
    for (const Subject& subject : subjects()) {
      const fs::path folder = seeds_ / subject.name;
      fs::create_directories(folder);
      fs::current_path(folder);
      Case c(session, capture_, 0, folder, seeds_);
      subject.make(c);
      for (const Outcome& o : c.outcomes)
        REQUIRE(o.accepted, "{}: {} is refused: {}", subject.name, text_of(o.words), o.err + o.message);
      for (const Finding& f : c.findings) fail("{}: {}: {}", subject.name, f.cause, f.text);
    }
  }

  void begin_case(std::uint64_t seed) const {
    shared_->cpu_began = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    shared_->began = now();
    shared_->seed = seed;
  }

  void run_case(const runtime::Session& session, std::uint64_t seed) {
    begin_case(seed);
    fs::remove_all(case_);
    fs::create_directories(case_);
    fs::current_path(case_);
    Case c(session, capture_, seed, case_, seeds_);
    const Subject& subject = subject_of(c.random, plan_.subject);
    c.before_command = [&] { write_story(c); };
    try {
      subject.attack(c);
    } catch (const std::exception& e) {
      c.found(fmt::format("the files that were accepted are refused when they are looked at: {}", e.what())
                  .substr(0, 160));
    }
    // What a command left open the library closes now, as at the end of a process.
    ::H5close();
    const double took = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - shared_->cpu_began;
    if (took > shared_->slowest) shared_->slowest = took, shared_->slowest_seed = seed;
    for (const Outcome& o : c.outcomes) ++(o.accepted ? shared_->accepted : shared_->refused);
    const std::string story = story_of(c.changes, c.outcomes);
    for (const Finding& finding : c.findings) note(seed, finding, story);
    if (plan_.aloud)
      say(fmt::format("seed {}, {}, {:.2f} s\n{}{}", seed, subject.name, took, story, printed(c)));
  }

  static std::string printed(const Case& c) {
    std::string text;
    for (const Outcome& o : c.outcomes) text += o.out + o.err + o.message + "\n";
    return text;
  }

  /// Kept in a file: the parent tells of a child that is dead.
  void write_story(const Case& c) const {
    std::ofstream(plan_.folder / "story") << story_of(c.changes, c.outcomes);
  }
  std::string read_story() const {
    std::ifstream file(plan_.folder / "story");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  void note(std::uint64_t seed, const Finding& finding, const std::string& story) const {
    const nlohmann::json line{
        {"seed", seed}, {"cause", finding.cause}, {"text", story + finding.text.substr(0, 3000)}};
    std::ofstream(findings_, std::ios::app)
        << line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) << '\n';
  }
  void say(const std::string& text) const {
    std::ofstream(plan_.folder / "said", std::ios::app) << text;
  }

  Report report() const {
    Report r;
    r.accepted = shared_->accepted, r.refused = shared_->refused;
    r.slowest = shared_->slowest, r.slowest_seed = shared_->slowest_seed;
    std::ifstream file(findings_);
    for (std::string text; std::getline(file, text);) {
      const nlohmann::json line = parse_json(text);
      Cause& cause = r.causes[line.at("cause")];
      if (cause.times++ == 0) cause.seed = line.at("seed"), cause.text = line.at("text");
    }
    return r;
  }

  const Plan plan_;
  const fs::path seeds_, case_, findings_;
  Shared* shared_;
  Capture capture_;
};

}  // namespace

Report run_cases(const Plan& plan) {
  return Runner(plan).run();
}

}  // namespace ztrain::damaged_files
