#include "app/parse.hpp"

#include <fmt/format.h>

#include "runtime/session.hpp"

namespace ztrain::app {

std::optional<int> parse(CLI::App& app, const Invocation& call) {
  std::vector<std::string> words(call.words.rbegin(), call.words.rend());  // CLI11 takes them last first
  try {
    app.parse(words);
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    if (call.session.rank() == 0) fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& e) {
    if (call.session.rank() == 0)
      fmt::print(stderr, "{}: {}\nrun with --help for what it takes\n", app.get_name(), e.what());
    return 2;
  }
}

}  // namespace ztrain::app
