#include "telemetry/place.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <thread>
#include <tuple>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/host_threads.hpp"
#include "base/json.hpp"
#include "base/launchers.hpp"

namespace ztrain::telemetry {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Waiting, sequence, what, ranks);
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Place, rank, host, process, written, phase, program, fingerprint, sequence,
                                   at, waits_for, last);

namespace {

std::filesystem::path file_of(const std::string& folder, int rank) {
  return std::filesystem::path(folder) / fmt::format("rank_{}.json", rank);
}

std::string name_of_rank(const Place& p) {
  return fmt::format("rank {} ({})", p.rank, p.host);
}

std::string where(const Place& p) {
  return p.phase + (p.at.empty() ? "" : ", " + p.at);
}

/// State and parent of a process, from /proc.
struct Stat {
  char state = ' ';
  int parent = 0;
};
std::optional<Stat> stat_of(int process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  Stat stat;
  // The process name before the bracket may hold spaces and brackets.
  const std::size_t end = text.rfind(')');
  if (end != std::string::npos) std::istringstream(text.substr(end + 1)) >> stat.state >> stat.parent;
  return stat;
}

/// Returns whether a process in this state of /proc is stopped, by a signal or by a debugger.
bool is_stopped(char state) {
  return state == 'T' || state == 't';
}

/// Returns the rank that a launcher has given the process, or "" if no launcher started it.
std::string rank_of_process(int process) {
  std::ifstream file(fmt::format("/proc/{}/environ", process), std::ios::binary);
  std::map<std::string, std::string, std::less<>> found;
  for (std::string variable; std::getline(file, variable, '\0');)
    if (const std::size_t equals = variable.find('='); equals != std::string::npos)
      found[variable.substr(0, equals)] = variable.substr(equals + 1);
  const std::optional<Started> started = started_by([&](std::string_view name) {
    const auto it = found.find(name);
    return it == found.end() ? std::nullopt : std::optional(it->second);
  });
  return started ? started->rank : "";
}

/// Describes a rank that has not answered.
std::string silence(const Hang& hang, int rank) {
  const auto& known = hang.known[static_cast<std::size_t>(rank)];
  if (!known) return fmt::format("rank {} gives no answer", rank);
  const bool here = known->host == node_name();
  const std::string state = here ? state_of_process(known->process) : "";
  return fmt::format("{} gives no answer: {}", name_of_rank(*known),
                     !state.empty() ? fmt::format("its process {} {}", known->process, state)
                     : here         ? fmt::format("its process {} does not write", known->process)
                            : "its process is stopped, or its node or the folder's disk is out of reach");
}

/// Returns whether two ranks' progress can be compared: not if they run one Program in different versions. A
/// rank in another Program counts as one that has not come to this one.
bool is_comparable(const Place& a, const Place& b) {
  return a.program != b.program || a.fingerprint == b.fingerprint;
}

/// Returns whether a rank has begun the communication that another waits for. A rank whose current op it is
/// may still wait before it.
bool has_begun(const Place& p, const std::string& program, std::int64_t sequence) {
  return p.program == program &&
         (p.sequence > sequence || (p.sequence == sequence && p.waits_for.sequence < 0));
}

/// A communication that ranks wait for. Lists its members that have not begun it or have not answered, and
/// those that cannot be compared because they count other ops.
struct Stuck {
  std::string program, what;
  std::int64_t sequence = 0;
  std::vector<int> waiting, missing, others;
};

std::vector<Stuck> stuck_of(const Hang& hang) {
  std::map<std::tuple<std::int64_t, std::uint64_t, std::vector<int>>, Stuck> found;
  for (std::size_t r = 0; r < hang.known.size(); ++r) {
    if (!hang.has_answered(static_cast<int>(r)) || hang.known[r]->waits_for.sequence < 0) continue;
    const Place& p = *hang.known[r];
    Stuck& s = found[{p.waits_for.sequence, p.fingerprint, p.waits_for.ranks}];
    s.program = p.program;
    s.what = p.waits_for.what;
    s.sequence = p.waits_for.sequence;
    s.waiting.push_back(p.rank);
  }
  std::vector<Stuck> all;
  for (auto& [group, s] : found) {
    const Place& one = *hang.known[static_cast<std::size_t>(s.waiting.front())];
    for (const int member : std::get<2>(group)) {
      const auto& place = hang.known[static_cast<std::size_t>(member)];
      if (hang.has_answered(member) && !is_comparable(*place, one))
        s.others.push_back(member);
      else if (!hang.has_answered(member) || !has_begun(*place, s.program, s.sequence))
        s.missing.push_back(member);
    }
    if (!s.missing.empty() || !s.others.empty()) all.push_back(std::move(s));
  }
  return all;
}

std::string line_of(const Stuck& s, const Hang& hang) {
  std::string text = fmt::format("rank{} {} wait{} in {} for:\n", s.waiting.size() > 1 ? "s" : "",
                                 fmt::join(s.waiting, ", "), s.waiting.size() > 1 ? "" : "s", s.what);
  for (const int rank : s.missing) {
    const auto& known = hang.known[static_cast<std::size_t>(rank)];
    text += hang.has_answered(rank)
                ? fmt::format("  {}, which has not come to it: {}\n", name_of_rank(*known), where(*known))
                : fmt::format("  {}\n", silence(hang, rank));
  }
  for (const int rank : s.others) {
    const Place& other = *hang.known[static_cast<std::size_t>(rank)];
    text += fmt::format("  {}, which computes another part of the model: {}\n", name_of_rank(other),
                        where(other));
  }
  return text;
}

}  // namespace

void write_place(const std::string& folder, const Place& place) {
  const std::filesystem::path path = file_of(folder, place.rank);
  const std::filesystem::path whole = path.string() + ".tmp";
  std::ofstream file(whole);
  file << json_text(nlohmann::json(place), 1) << "\n";
  file.close();
  REQUIRE(file.good(), "{} cannot be written", whole.string());
  std::filesystem::rename(whole, path);
}

void remove_places(const std::string& folder) {
  std::vector<std::filesystem::path> old;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("rank_")) old.push_back(entry.path());
  for (const auto& path : old) std::filesystem::remove(path);
}

std::optional<Place> read_place(const std::string& folder, int rank) {
  std::ifstream file(file_of(folder, rank));
  if (!file) return std::nullopt;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    return parse_json(text).get<Place>();
  } catch (const std::exception&) {
    return std::nullopt;  // the file was not written by a rank, so it counts as no answer
  }
}

bool Hang::has_answered(int rank) const {
  const auto& place = known[static_cast<std::size_t>(rank)];
  return place && place->written >= since;
}

bool Hang::all_have_answered() const {
  for (std::size_t rank = 0; rank < known.size(); ++rank)
    if (!has_answered(static_cast<int>(rank))) return false;
  return true;
}

std::string PlaceFolder::ask(const Place& mine, double since, double patience) const {
  constexpr std::chrono::milliseconds pause{100};
  const double end = now() + patience;
  write_place(path, mine);
  Hang hang{std::vector<std::optional<Place>>(static_cast<std::size_t>(ranks)), since};
  for (;;) {
    for (int rank = 0; rank < ranks; ++rank) {
      if (hang.has_answered(rank)) continue;
      hang.known[static_cast<std::size_t>(rank)] = read_place(path, rank);
      // Only the speaking rank reads all ranks' files, of which there may be thousands.
      if (rank < mine.rank && hang.has_answered(rank)) return "";
    }
    if (hang.all_have_answered() || now() >= end) return verdict(hang);
    std::this_thread::sleep_for(pause);
  }
}

std::string verdict(const Hang& hang) {
  std::string text;
  for (const Stuck& s : stuck_of(hang)) text += line_of(s, hang);
  // If no communication explains the hang, each rank's place is printed.
  const bool explained = !text.empty();
  std::map<std::string, std::vector<int>> places;
  for (std::size_t r = 0; r < hang.known.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (hang.has_answered(rank))
      places[where(*hang.known[r])].push_back(rank);
    else if (!explained)
      text += silence(hang, rank) + "\n";
  }
  text += "where the ranks are:\n";
  for (const auto& [where, ranks] : places) text += fmt::format("  {}: {}\n", where, fmt::join(ranks, ", "));
  return text;
}

std::string state_of_process(int process) {
  const std::optional<Stat> stat = stat_of(process);
  if (!stat) return "is gone";
  if (is_stopped(stat->state)) return "is stopped";
  switch (stat->state) {
    case 'Z':
    case 'X':
      return "is gone";
    case 'D':
      return "waits for a disk or another device";
    default:
      return "";
  }
}

std::string stopped_neighbours() {
  std::string text;
  std::error_code error;
  if (rank_of_process(::getpid()).empty()) return text;
  // The iterator is advanced by hand, because ++ of a range-for throws, which would end the process on the
  // watchdog's thread.
  std::filesystem::directory_iterator entry("/proc", error);
  for (const std::filesystem::directory_iterator end; !error && entry != end; entry.increment(error)) {
    const int process = std::atoi(entry->path().filename().c_str());
    if (process == 0) continue;
    const std::optional<Stat> stat = stat_of(process);
    if (!stat || stat->parent != ::getppid() || !is_stopped(stat->state)) continue;
    if (const std::string rank = rank_of_process(process); !rank.empty())
      text += fmt::format("\nrank {} on the same node is stopped: process {}", rank, process);
  }
  return text;
}

}  // namespace ztrain::telemetry
