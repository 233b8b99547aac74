#include "command.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <map>

#include "app/commands.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "telemetry/console.hpp"
#include "telemetry/watchdog.hpp"

namespace ztrain::damaged_files {
namespace {

int dispatch(app::Invocation call) {
  static const std::map<std::string, int (*)(const app::Invocation&)> commands{
      {"check", app::check}, {"plan", app::plan}, {"generate", app::generate}, {"export", app::export_model}};
  const auto command = commands.find(call.words.at(0));
  if (command == commands.end()) return app::train(call);
  call.words.erase(call.words.begin());
  return command->second(call);
}

}  // namespace

Capture::Capture() : out_(::memfd_create("out", 0)), err_(::memfd_create("err", 0)) {
  REQUIRE(out_ >= 0 && err_ >= 0, "no files for what is printed");
}

Capture::~Capture() {
  ::close(out_);
  ::close(err_);
}

void Capture::take_over() const {
  std::fflush(nullptr);
  REQUIRE(::dup2(out_, STDOUT_FILENO) >= 0 && ::dup2(err_, STDERR_FILENO) >= 0, "cannot print elsewhere");
}

void Capture::clear() const {
  std::fflush(nullptr);
  for (const int descriptor : {out_, err_})
    REQUIRE(::ftruncate(descriptor, 0) == 0 && ::lseek(descriptor, 0, SEEK_SET) == 0, "cannot forget");
}

std::string Capture::text(int descriptor) {
  std::fflush(nullptr);
  std::string text(static_cast<std::size_t>(::lseek(descriptor, 0, SEEK_END)), '\0');
  const auto got = ::pread(descriptor, text.data(), text.size(), 0);
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return text;
}

Outcome run_command(const runtime::Session& session, const Capture& capture, const Words& words) {
  Outcome outcome;
  outcome.words = words;
  capture.clear();
  {
    telemetry::Watchdog watchdog(0);
    telemetry::Console console(telemetry::Outlet::of_process(), &watchdog);
    try {
      outcome.accepted = dispatch({session, console, watchdog, words}) == 0;
    } catch (const Error& e) {
      outcome.message = with_short_lists(e.what());
    } catch (const std::exception& e) {
      outcome.foreign = true;
      outcome.message = e.what();
    }
  }
  outcome.out = capture.out();
  outcome.err = capture.err();
  return outcome;
}

std::string text_of(const Words& words) {
  std::string text = "ztrain";
  for (const std::string& word : words) text += " " + word;
  return text;
}

}  // namespace ztrain::damaged_files
