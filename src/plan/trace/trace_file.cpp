#include "plan/trace/trace_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.hpp"

namespace ztrain::plan {
namespace {

/// The format counts in microseconds.
std::string microseconds(std::int64_t nanoseconds) {
  return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

std::string place(const char* phase, Track track, std::int64_t when) {
  return fmt::format(R"({{"ph":"{}","pid":{},"tid":{},"ts":{})", phase, track.process, track.thread,
                     microseconds(when));
}

/// A name and an order of a process, or of a thread of it.
std::string name_event(const char* kind, Track track, const std::string& name, int order) {
  const std::string head =
      fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{})", track.process, track.thread, kind);
  return fmt::format(
      "{0}_name\",\"args\":{{\"name\":{1}}}}},\n{0}_sort_index\",\"args\":{{\"sort_index\":{2}}}}}", head,
      json_quoted(name), order);
}

}  // namespace

std::string json_quoted(std::string_view text) {
  return json_text(nlohmann::json(text));
}

void TraceFile::name_process(int process, const std::string& name) {
  names_.try_emplace({process, -1}, name_event("process", {process, 0}, name, process));
}

void TraceFile::name_thread(Track track, const std::string& name) {
  names_.try_emplace({track.process, track.thread}, name_event("thread", track, name, track.thread));
}

void TraceFile::slice(Track track, std::string_view name, std::string_view category, std::int64_t begin,
                      std::int64_t end, std::string_view args) {
  add(begin, fmt::format(R"({},"dur":{},"name":{},"cat":"{}","args":{}}})", place("X", track, begin),
                         microseconds(end - begin), json_quoted(name), category, args));
}

void TraceFile::arrow(Track from, std::int64_t left, Track to, std::int64_t reached) {
  // Numbers of arrows of several ranks' files differ, so that the files can be merged.
  constexpr std::int64_t most_arrows = 100'000'000;
  const std::int64_t id = from.process * most_arrows + ++arrows_;
  const auto end = [&](const char* phase, Track track, std::int64_t when, const char* binding) {
    add(when, fmt::format(R"({},"id":{},"name":"waits for","cat":"dependency"{}}})",
                          place(phase, track, when), id, binding));
  };
  end("s", from, left, "");
  end("f", to, reached, R"(,"bp":"e")");
}

void TraceFile::mark(int process, std::string_view name, std::int64_t when, std::string_view args) {
  add(when, fmt::format(R"({},"s":"p","name":{},"args":{}}})", place("i", {process, 0}, when),
                        json_quoted(name), args));
}

void TraceFile::counter(int process, std::string_view name, std::int64_t when, std::string_view args) {
  add(when,
      fmt::format(R"({},"name":{},"args":{}}})", place("C", {process, 0}, when), json_quoted(name), args));
}

void TraceFile::write(OutputFile& file, const nlohmann::ordered_json& facts) {
  std::ranges::stable_sort(events_, {}, &Event::when);
  std::string text = "{\"displayTimeUnit\":\"ms\",\"otherData\":" + json_text(facts) + ",\"traceEvents\":[\n";
  const char* before = "";
  const auto put = [&](const std::string& event) {
    text += before + event;
    before = ",\n";
    if (text.size() < 1 << 20) return;
    file.write(text);
    text.clear();
  };
  for (const auto& [track, name] : names_) put(name);
  for (const Event& event : events_) put(event.text);
  file.write(text + "\n]}\n");
  file.close();
}

}  // namespace ztrain::plan
