#include "checkpoint/neighbours/node_ring.hpp"

#include <algorithm>
#include <utility>

namespace ztrain::checkpoint {

FilePart file_part(std::int64_t bytes, std::int64_t number, std::int64_t parts) {
  return {bytes * number / parts, bytes * (number + 1) / parts};
}

NodeRing::NodeRing(std::vector<int> node_of) : node_of_(std::move(node_of)) {
  ranks_.resize(static_cast<std::size_t>(*std::ranges::max_element(node_of_)) + 1);
  for (std::size_t rank = 0; rank < node_of_.size(); ++rank)
    ranks_[static_cast<std::size_t>(node_of_[rank])].push_back(static_cast<int>(rank));
}

int NodeRing::place_on_node(int rank) const {
  const std::vector<int>& ranks = ranks_of(node_of(rank));
  return static_cast<int>(std::ranges::find(ranks, rank) - ranks.begin());
}

NodeRing::Held NodeRing::held(int node, std::span<const std::int64_t> saved) const {
  const auto sum_of = [&](int of_node) {
    std::int64_t sum = 0;
    for (const int rank : ranks_of(of_node)) sum += saved[static_cast<std::size_t>(rank)];
    return sum;
  };
  return {sum_of(node), nodes() == 1 ? 0 : sum_of(before(node))};
}

/// Only ranks with a partner on the other node send.
int NodeRing::lanes(int from_node) const {
  if (nodes() == 1) return 0;
  return static_cast<int>(std::min(ranks_of(from_node).size(), ranks_of(next(from_node)).size()));
}

std::optional<Lane> NodeRing::lane(int from_node, int number, int rank, std::int64_t bytes) const {
  const int all = lanes(from_node);
  if (number >= all) return std::nullopt;
  return Lane{file_part(bytes, number, all), rank};
}

std::optional<Lane> NodeRing::sends(int rank, std::int64_t bytes) const {
  const int own = node_of(rank), place = place_on_node(rank);
  if (place >= lanes(own)) return std::nullopt;
  return lane(own, place, ranks_of(next(own))[static_cast<std::size_t>(place)], bytes);
}

std::optional<Lane> NodeRing::receives(int rank, std::int64_t bytes) const {
  const int from = before(node_of(rank)), place = place_on_node(rank);
  if (place >= lanes(from)) return std::nullopt;
  return lane(from, place, ranks_of(from)[static_cast<std::size_t>(place)], bytes);
}

std::int64_t NodeRing::longest_lane(int from_node, std::int64_t bytes) const {
  const int all = lanes(from_node);
  return all == 0 ? 0 : (bytes + all - 1) / all;
}

}  // namespace ztrain::checkpoint
