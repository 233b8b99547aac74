#include "app/commands.hpp"
#include "app/parse.hpp"
#include "config/text/print.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"

namespace ztrain::app {

int deck(const Invocation& call) {
  Parser parser("A commented template of a deck: every key with its default", "ztrain deck");
  bool markdown = false;
  parser.flag("--markdown", markdown, "print docs/inputs.md instead");
  if (const auto code = parser.parse(call)) return *code;
  call.session.agree("printing the template", [&] {
    call.console.print(markdown ? config::inputs_markdown() : config::deck_template());
  });
  return 0;
}

}  // namespace ztrain::app
