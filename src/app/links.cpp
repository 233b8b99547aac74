#include <fmt/format.h>

#include "app/parse.hpp"
#include "base/text.hpp"
#include "runtime/device/device.hpp"
#include "runtime/session/links.hpp"
#include "runtime/session/session.hpp"
#include "runtime/session/transport.hpp"
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
  std::string root = "/";
  parser.option("--root", root, "folder whose sys and proc/self are read for network devices, for tests");
  parser.option("--slow", share, "share of the usual bandwidth below which a node is slow").range(0.0, 1.0);
  if (const auto code = parser.parse(call)) return *code;
  call.watchdog.set_timeout(timeout);
  // No communicator of NCCL is made here, so the network is the one that NCCL would find.
  const bool nccl = runtime::built_for_gpus();
  if (nccl) runtime::load_network_of_nccl(own_environment());
  const auto measure = [&] {
    return runtime::measure_links(call.session, request,
                                  [&](const std::string& next) { call.watchdog.beat(next); });
  };
  const runtime::Links found = runtime::fastest_of(measure, share);
  call.console.print(fmt::format(
      "links of {} with {}, all-reduces of {} MiB\n{}", count_text(std::ssize(found.hosts), "node"),
      count_text(call.session.size(), "rank"), request.mebibytes, runtime::links_text(found, share)));
  const runtime::NetworkReport networks = runtime::report_networks(call.session, root, nccl);
  for (const std::string& line : networks.lines) call.console.print(fmt::format("network {}\n", line));
  for (const std::string& line : networks.warnings)
    call.console.print(fmt::format("slow network {}\n", line));
  return 0;
}

}  // namespace ztrain::app
