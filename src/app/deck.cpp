#include "app/commands.hpp"
#include "base/error.hpp"
#include "config/text/print.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"

namespace ztrain::app {

int deck(const Invocation& call) {
  call.session.agree("printing the template", [&] {
    const bool markdown = call.words.size() == 1 && call.words[0] == "--markdown";
    REQUIRE(call.words.empty() || markdown, "ztrain deck takes nothing, or --markdown; not '{}'",
            call.words[0]);
    call.console.print(markdown ? config::inputs_markdown() : config::deck_template());
  });
  return 0;
}

}  // namespace ztrain::app
