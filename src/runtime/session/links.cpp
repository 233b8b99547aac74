#include "runtime/session/links.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstdlib>

#include "base/clock.hpp"
#include "base/text.hpp"
#include "runtime/session/mpi_check.hpp"

namespace ztrain::runtime {
namespace {

/// Returns the seconds of the fastest of some all-reduces over the group. Every member calls it.
double seconds_of(MPI_Comm group, std::vector<float>& data, int times) {
  double best = 0;
  for (int i = 0; i < times; ++i) {
    check_mpi(MPI_Barrier(group), "MPI_Barrier");
    const double start = now();
    check_mpi(
        MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM, group),
        "MPI_Allreduce");
    const double seconds = now() - start;
    if (i == 0 || seconds < best) best = seconds;
  }
  return best;
}

/// Returns this rank's rate in an all-reduce over the `members` ranks of its color: bytes that an all-reduce
/// has to send for each of its own, over the time.
double rate_of(MPI_Comm world, int color, std::vector<float>& data, int times) {
  MPI_Comm group = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(world, color, 0, &group), "MPI_Comm_split");
  if (group == MPI_COMM_NULL) return 0;
  int members = 1;
  check_mpi(MPI_Comm_size(group, &members), "MPI_Comm_size");
  double rate = 0;
  if (members > 1) {
    const double share = 2.0 * (members - 1) / members;
    rate = share * static_cast<double>(data.size() * sizeof(float)) / seconds_of(group, data, times);
  }
  check_mpi(MPI_Comm_free(&group), "MPI_Comm_free");
  return rate;
}

/// Returns the name of each node, on every rank.
std::vector<std::string> hosts_of(const Session& session) {
  constexpr std::size_t length = 64;
  std::string mine = session.host().substr(0, length - 1);
  mine.resize(length);
  std::string all(length * static_cast<std::size_t>(session.size()), '\0');
  check_mpi(MPI_Allgather(mine.data(), length, MPI_CHAR, all.data(), length, MPI_CHAR, session.world()),
            "MPI_Allgather");
  std::vector<std::string> hosts(static_cast<std::size_t>(session.nodes()));
  for (int rank = 0; rank < session.size(); ++rank)
    hosts[static_cast<std::size_t>(session.node_of(rank))] =
        all.substr(static_cast<std::size_t>(rank) * length, length).c_str();
  return hosts;
}

/// Returns the fastest rate of a node's links to others; 0 if it has none.
double fastest(const Links& links, std::size_t node) {
  double best = 0;
  for (std::size_t other = 0; other < links.hosts.size(); ++other)
    if (other != node) best = std::max(best, links.bytes_per_second[node][other]);
  return best;
}

double median_of_fastest(const Links& links) {
  std::vector<double> all;
  for (std::size_t node = 0; node < links.hosts.size(); ++node) all.push_back(fastest(links, node));
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

std::string rate(double bytes_per_second) {
  return bytes_per_second > 0 ? format_decimal_bytes(bytes_per_second) + "/s" : "-";
}

}  // namespace

int rounds_of(int nodes) {
  return nodes % 2 == 0 ? nodes - 1 : nodes;
}

/// All but the last seat go round a table; for an odd number of nodes the last seat is empty.
int partner_of(int node, int round, int nodes) {
  const int seats = nodes + nodes % 2, circle = seats - 1;
  if (node == circle) return round;
  const int across = (2 * round - node + 2 * circle) % circle;
  const int other = across == node ? circle : across;
  return other < nodes ? other : -1;
}

Links measure_links(const Session& session, const LinksRequest& request,
                    const std::function<void(const std::string&)>& at) {
  Links links{hosts_of(session), {}};
  const auto nodes = static_cast<std::size_t>(session.nodes());
  std::vector<double> sums(nodes * nodes, 0.0);
  std::vector<float> data(static_cast<std::size_t>(request.mebibytes) << 18, 1.0F);
  const auto mine = static_cast<std::size_t>(session.node());
  const auto measure = [&](std::size_t other, int color) {
    const double got = rate_of(session.world(), color, data, request.times);
    sums[mine * nodes + other] += other == mine ? got / session.ranks_on_node() : got;
  };
  at(fmt::format("an all-reduce within {}", session.host()));
  measure(mine, session.node());
  for (int round = 0; nodes > 1 && round < rounds_of(session.nodes()); ++round) {
    const int other = partner_of(session.node(), round, session.nodes());
    at(other < 0 ? "a round of links between other nodes"
                 : fmt::format("an all-reduce with {}", links.hosts[static_cast<std::size_t>(other)]));
    // Ranks with the same index on both nodes meet, so that each uses the network next to it.
    const int color = std::min(session.node(), other) * session.max_ranks_per_node() + session.local_rank();
    measure(other < 0 ? mine : static_cast<std::size_t>(other), other < 0 ? MPI_UNDEFINED : color);
  }
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, sums.data(), static_cast<int>(sums.size()), MPI_DOUBLE, MPI_SUM,
                          session.world()),
            "MPI_Allreduce");
  for (std::size_t node = 0; node < nodes; ++node)
    links.bytes_per_second.emplace_back(sums.begin() + static_cast<std::ptrdiff_t>(node * nodes),
                                        sums.begin() + static_cast<std::ptrdiff_t>((node + 1) * nodes));
  return links;
}

std::vector<int> slow_nodes(const Links& links, double share) {
  std::vector<int> slow;
  if (links.hosts.size() < 3) return slow;
  const double usual = median_of_fastest(links);
  for (std::size_t node = 0; node < links.hosts.size(); ++node)
    if (fastest(links, node) < share * usual) slow.push_back(static_cast<int>(node));
  return slow;
}

Links fastest_of(const std::function<Links()>& measure, double share) {
  Links links = measure();
  for (int times = 1; times < most_measurements && !slow_nodes(links, share).empty(); ++times) {
    const Links other = measure();
    for (std::size_t node = 0; node < links.hosts.size(); ++node)
      std::ranges::transform(links.bytes_per_second[node], other.bytes_per_second[node],
                             links.bytes_per_second[node].begin(), std::ranges::max);
  }
  return links;
}

std::string links_text(const Links& links, double share) {
  Table table({"node", "within, each rank", "slowest link", "to", "fastest link", "to"});
  for (std::size_t node = 0; node < links.hosts.size(); ++node) {
    const std::vector<double>& row = links.bytes_per_second[node];
    std::vector<std::size_t> others;
    for (std::size_t other = 0; other < row.size(); ++other)
      if (other != node && row[other] > 0) others.push_back(other);
    std::sort(others.begin(), others.end(), [&](std::size_t a, std::size_t b) { return row[a] < row[b]; });
    if (others.empty())
      table.row({links.hosts[node], rate(row[node])});
    else
      table.row({links.hosts[node], rate(row[node]), rate(row[others.front()]), links.hosts[others.front()],
                 rate(row[others.back()]), links.hosts[others.back()]});
  }
  std::string text = table.text(2);
  for (const int node : slow_nodes(links, share)) {
    const auto i = static_cast<std::size_t>(node);
    text += fmt::format("slow node {}: {} on its fastest link, where {} is usual\n", links.hosts[i],
                        rate(fastest(links, i)), rate(median_of_fastest(links)));
  }
  return text;
}

}  // namespace ztrain::runtime
