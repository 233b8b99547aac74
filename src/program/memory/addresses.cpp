#include "program/memory/addresses.hpp"

#include <algorithm>
#include <bit>
#include <memory_resource>
#include <numeric>
#include <set>
#include <vector>

#include "base/shape.hpp"

namespace ztrain::program {
namespace {

template <class Key>
std::vector<int> sorted_by(std::size_t count, Key key) {
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key(a) < key(b); });
  return order;
}

/// Holes below the top of the range, by address and by size.
class Holes {
 public:
  /// The start of the smallest hole that fits, or of new bytes at the top.
  std::int64_t take(std::int64_t size) {
    const auto fit = by_size_.lower_bound({size, 0});
    if (fit != by_size_.end()) {
      const auto [hole, address] = *fit;
      remove(address, hole);
      if (hole > size) add(address + size, hole - size);
      return address;
    }
    std::int64_t address = top_;
    if (!by_address_.empty()) {
      const auto [begin, hole] = *by_address_.rbegin();
      if (begin + hole == top_) {
        address = begin;
        remove(begin, hole);
      }
    }
    top_ = address + size;
    return address;
  }

  void give(std::int64_t address, std::int64_t size) {
    auto next = by_address_.lower_bound({address, 0});
    if (next != by_address_.end() && next->first == address + size) {
      const auto [begin, hole] = *next;
      remove(begin, hole);
      size += hole;
      next = by_address_.lower_bound({address, 0});
    }
    if (next != by_address_.begin()) {
      const auto [begin, hole] = *std::prev(next);
      if (begin + hole == address) {
        remove(begin, hole);
        address = begin;
        size += hole;
      }
    }
    add(address, size);
  }

  std::int64_t top() const { return top_; }

 private:
  void add(std::int64_t address, std::int64_t size) {
    by_address_.insert({address, size});
    by_size_.insert({size, address});
  }
  void remove(std::int64_t address, std::int64_t size) {
    by_address_.erase({address, size});
    by_size_.erase({size, address});
  }

  std::set<std::pair<std::int64_t, std::int64_t>> by_address_, by_size_;
  std::int64_t top_ = 0;
};

struct Run {
  std::int64_t begin, end;
};
/// Taken addresses as disjoint runs, ascending; runs that touch are one.
using Runs = std::pmr::vector<Run>;

void insert(Runs& runs, std::int64_t begin, std::int64_t end) {
  const auto lo = std::partition_point(runs.begin(), runs.end(), [&](const Run& r) { return r.end < begin; });
  const auto hi = std::partition_point(lo, runs.end(), [&](const Run& r) { return r.begin <= end; });
  if (lo == hi) {
    runs.insert(lo, {begin, end});
    return;
  }
  lo->begin = std::min(lo->begin, begin);
  lo->end = std::max(std::prev(hi)->end, end);
  runs.erase(std::next(lo), hi);
}

/// Addresses taken over time: a segment tree over issue positions. A block is kept whole at the few nodes
/// that make up its lifetime, and counts as inside all nodes above them, as far as some lifetime asks those.
class Taken {
 public:
  Taken(const std::vector<Block>& blocks, std::size_t ops)
      : leaves_(std::bit_ceil(std::max<std::size_t>(ops, 1))),
        whole_(2 * leaves_, &memory_),
        inside_(2 * leaves_, &memory_),
        asked_(2 * leaves_, false) {
    for (const Block& block : blocks) parts(block, [&](std::size_t node) { asked_[node] = true; });
  }

  void insert(const Block& block, std::int64_t address) {
    const std::int64_t end = address + block.size;
    const auto inside = [&](std::size_t node) {
      if (asked_[node]) program::insert(inside_[node], address, end);
    };
    parts(block, [&](std::size_t node) {
      program::insert(whole_[node], address, end);
      inside(node);
    });
    above(block, inside);
  }

  /// Takes a lifetime into what lowest() looks at next.
  void look_at(const Block& block) {
    const auto look_at = [&](const Runs& runs) {
      if (!runs.empty()) cursors_.push_back({runs.data(), runs.data() + runs.size()});
    };
    parts(block, [&](std::size_t node) { look_at(inside_[node]); });
    above(block, [&](std::size_t node) { look_at(whole_[node]); });
  }

  /// The lowest address that is free over the lifetimes looked at. Subtracts the runs it looks at from
  /// budget.
  std::int64_t lowest(std::int64_t size, std::int64_t& budget) {
    const std::int64_t address = climb(size, budget);
    cursors_.clear();
    return address;
  }

 private:
  struct Cursor {
    const Run *next, *end;
  };

  /// The nodes that make up a lifetime.
  template <class Visit>
  void parts(const Block& block, Visit visit) const {
    std::size_t lo = leaves_ + at(block.first), hi = leaves_ + at(block.last) + 1;
    for (; lo < hi; lo /= 2, hi /= 2) {
      if (lo % 2 == 1) visit(lo++);
      if (hi % 2 == 1) visit(--hi);
    }
  }

  /// All nodes on the two ways from the ends of a lifetime to the root, each once.
  template <class Visit>
  void above(const Block& block, Visit visit) const {
    std::size_t first = leaves_ + at(block.first), last = leaves_ + at(block.last);
    for (; first > 0; first /= 2, last /= 2) {
      visit(first);
      if (last != first) visit(last);
    }
  }

  std::int64_t climb(std::int64_t size, std::int64_t& budget) {
    std::int64_t address = 0;
    // Done once every list has been found clear at the same address.
    for (std::size_t clear = 0, k = 0; clear < cursors_.size(); k = (k + 1) % cursors_.size()) {
      Cursor& c = cursors_[k];
      ++clear;
      --budget;
      for (; c.next != c.end && c.next->begin < address + size; ++c.next, --budget) {
        if (c.next->end <= address) continue;
        address = c.next->end;
        clear = 1;
      }
    }
    return address;
  }

  std::size_t leaves_;
  std::pmr::monotonic_buffer_resource memory_;  ///< of runs, which are many and short, and end together
  std::pmr::vector<Runs> whole_, inside_;
  std::vector<bool> asked_;  ///< by node: some lifetime is made up of it and others
  std::vector<Cursor> cursors_;
};

/// Per block the first of those that share its address.
std::vector<int> heads(std::size_t count, const std::vector<int>& next) {
  std::vector<int> head(count);
  std::iota(head.begin(), head.end(), 0);
  std::vector<bool> named(count, false);
  for (const int b : next)
    if (b >= 0) named[at(b)] = true;
  for (std::size_t first = 0; first < next.size(); ++first)
    for (int b = static_cast<int>(first); !named[first] && b >= 0; b = next[at(b)])
      head[at(b)] = static_cast<int>(first);
  return head;
}

/// Whether blocks that are to share an address could: one is over before the next begins.
bool lives_follow(const std::vector<Block>& blocks, const std::vector<int>& next) {
  for (std::size_t b = 0; b < next.size(); ++b)
    if (next[b] >= 0 && blocks[at(next[b])].first <= blocks[b].last) return false;
  return true;
}

bool share_addresses(const Addresses& chosen, const std::vector<int>& next) {
  for (std::size_t b = 0; b < next.size(); ++b)
    if (next[b] >= 0 && chosen.address[b] != chosen.address[at(next[b])]) return false;
  return true;
}

std::vector<Block> mirrored(const std::vector<Block>& blocks, std::size_t ops) {
  std::vector<Block> result = blocks;
  const OpId end = static_cast<OpId>(ops) - 1;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    result[b].first = end - blocks[b].last;
    result[b].last = end - blocks[b].first;
  }
  return result;
}

}  // namespace

std::int64_t live_bytes(const std::vector<Block>& blocks, std::size_t ops) {
  std::vector<std::int64_t> change(ops + 1, 0);
  for (const Block& block : blocks) {
    change[at(block.first)] += block.size;
    change[at(block.last) + 1] -= block.size;
  }
  std::int64_t live = 0, largest = 0;
  for (const std::int64_t c : change) largest = std::max(largest, live += c);
  return largest;
}

Addresses place_online(const std::vector<Block>& given, std::size_t ops, bool from_end) {
  const std::vector<Block> blocks = from_end ? mirrored(given, ops) : given;
  const auto begins =
      sorted_by(blocks.size(), [&](int b) { return std::pair(blocks[at(b)].first, -blocks[at(b)].size); });
  const auto ends = sorted_by(blocks.size(), [&](int b) { return blocks[at(b)].last; });
  Addresses result{std::vector<std::int64_t>(blocks.size(), 0), 0};
  Holes holes;
  std::size_t freed = 0;
  for (const int b : begins) {
    for (; blocks[at(ends[freed])].last < blocks[at(b)].first; ++freed)
      holes.give(result.address[at(ends[freed])], blocks[at(ends[freed])].size);
    result.address[at(b)] = holes.take(blocks[at(b)].size);
  }
  result.extent = holes.top();
  return result;
}

Addresses place_first_fit(const std::vector<Block>& blocks, const std::vector<int>& order, std::size_t ops,
                          Limits limits, const std::vector<int>& next) {
  Addresses result{std::vector<std::int64_t>(blocks.size(), -1), 0};
  const std::vector<int> head = heads(blocks.size(), next);
  const auto behind = [&](int b) { return next.empty() ? -1 : next[at(b)]; };
  Taken taken(blocks, ops);
  for (const int placed : order) {
    if (result.address[at(placed)] >= 0) continue;
    for (int b = head[at(placed)]; b >= 0; b = behind(b)) taken.look_at(blocks[at(b)]);
    const std::int64_t address = taken.lowest(blocks[at(placed)].size, limits.looks);
    if (limits.looks < 0 || address + blocks[at(placed)].size > limits.extent) return {{}, -1};
    for (int b = head[at(placed)]; b >= 0; b = behind(b)) {
      taken.insert(blocks[at(b)], address);
      result.address[at(b)] = address;
    }
    result.extent = std::max(result.extent, address + blocks[at(placed)].size);
  }
  return result;
}

Addresses choose_addresses(const std::vector<Block>& blocks, std::size_t ops, const std::vector<int>& next) {
  const auto duration = [&](int b) { return blocks[at(b)].last - blocks[at(b)].first; };
  const auto size = [&](int b) { return blocks[at(b)].size; };
  const std::int64_t live = live_bytes(blocks, ops), enough = live + live / 1000;
  Addresses best{{}, -1};
  if (!lives_follow(blocks, next)) return best;
  const auto first_fit = [&](auto key) {
    constexpr std::int64_t looks = 1'000'000'000;  // some seconds
    const Limits limits = best.extent < 0 ? Limits{looks} : Limits{looks, best.extent - 1};
    return place_first_fit(blocks, sorted_by(blocks.size(), key), ops, limits, next);
  };
  const auto improve = [&](auto attempt) {
    if (best.extent >= 0 && best.extent <= enough) return;
    Addresses other = attempt();
    const bool better = best.extent < 0 || other.extent < best.extent;
    if (other.extent >= 0 && better && share_addresses(other, next)) best = std::move(other);
  };
  // Where micro-batches are alike the holes are, after the first ones, and so are the addresses.
  improve([&] { return place_online(blocks, ops, false); });
  improve([&] { return place_online(blocks, ops, true); });
  improve([&] { return first_fit([&](int b) { return std::pair(-size(b), -duration(b)); }); });
  improve([&] { return first_fit([&](int b) { return std::pair(-duration(b), -size(b)); }); });
  return best;
}

}  // namespace ztrain::program
