#include <fmt/format.h>

#include "app/parse.hpp"
#include "base/text.hpp"
#include "runtime/session/links.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"
#include "telemetry/watchdog.hpp"

namespace ztrain::app {

int links(const Invocation& call) {
  Parser parser(
      "How fast the nodes of the job reach each other, by short all-reduces of MPI between every two; a node "
      "that is slow each of three times is named. slurm/preflight.sh runs it",
      "ztrain links");
  runtime::LinksRequest request;
  double timeout = 60, share = 0.5;
  parser.option("--mebibytes", request.mebibytes, "size of an all-reduce").range(1, 1024);
  parser.option("--times", request.times, "all-reduces of a link, of which the fastest counts")
      .range(1, 1000);
  parser.option("--timeout", timeout, "seconds for a link, after which those that wait say for whom")
      .not_negative();
  parser.option("--slow", share, "share of the usual bandwidth below which a node is slow").range(0.0, 1.0);
  if (const auto code = parser.parse(call)) return *code;
  call.watchdog.set_timeout(timeout);
  const auto measure = [&] {
    return runtime::measure_links(call.session, request,
                                  [&](const std::string& next) { call.watchdog.beat(next); });
  };
  const runtime::Links found = runtime::fastest_of(measure, share);
  call.console.print(fmt::format(
      "links of {} with {}, all-reduces of {} MiB\n{}", count_text(std::ssize(found.hosts), "node"),
      count_text(call.session.size(), "rank"), request.mebibytes, runtime::links_text(found, share)));
  return 0;
}

}  // namespace ztrain::app
