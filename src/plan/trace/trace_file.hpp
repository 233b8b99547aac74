#pragma once
// A trace in Chrome's trace event format, which ui.perfetto.dev, chrome://tracing and Python's json read.

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/file.hpp"

namespace ztrain::plan {

/// A time line of a trace: a thread of a process.
struct Track {
  int process = 0, thread = 0;
};

/// Returns a time of the trace, in nanoseconds: what lies before its beginning is at its beginning.
inline std::int64_t nanoseconds(double seconds) {
  return seconds > 0 ? static_cast<std::int64_t>(seconds * 1e9 + 0.5) : 0;
}

/// Returns the text as a JSON string.
std::string json_quoted(std::string_view text);

/// Collects events in any order. Times are nanoseconds from the beginning of the trace; args are JSON
/// objects.
class TraceFile {
 public:
  /// Processes and threads are drawn in the order of their numbers. The first name counts.
  void name_process(int process, const std::string& name);
  void name_thread(Track track, const std::string& name);
  /// Slices of one track may not overlap.
  void slice(Track track, std::string_view name, std::string_view category, std::int64_t begin,
             std::int64_t end, std::string_view args);
  /// An arrow from the slice that is there at `left` to the one that begins at `reached`.
  void arrow(Track from, std::int64_t left, Track to, std::int64_t reached);
  /// A mark on a whole process.
  void mark(int process, std::string_view name, std::int64_t when, std::string_view args);
  /// Values from this time on, each a line of its own.
  void counter(int process, std::string_view name, std::int64_t when, std::string_view args);

  /// Events, ordered by time. facts: what holds for the whole trace ("otherData").
  void write(OutputFile& file, const nlohmann::ordered_json& facts);

 private:
  struct Event {
    std::int64_t when;
    std::string text;
  };
  void add(std::int64_t when, std::string text) { events_.push_back({when, std::move(text)}); }

  std::map<std::pair<int, int>, std::string> names_;  ///< by process and thread, which is -1 for the process
  std::vector<Event> events_;
  std::int64_t arrows_ = 0;
};

}  // namespace ztrain::plan
