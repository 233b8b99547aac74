#pragma once
// Threads of the host in the place of a GPU's: what kernels write against `Threads`
// (kernels/launch/threads.hpp) runs here, each rank in a thread of its own.

#include <barrier>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

namespace ztrain::test {

class HostThreads {
 public:
  /// What the threads of a team share.
  struct Shared {
    explicit Shared(int threads) : barrier(threads), parts(static_cast<std::size_t>(threads)) {}
    std::barrier<> barrier;
    std::vector<double> parts;
  };

  HostThreads(Shared& shared, int rank) : shared_(shared), rank_(rank) {}

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(shared_.parts.size()); }
  void sync() const { shared_.barrier.arrive_and_wait(); }

  template <class A>
  A sum(A part) const {
    return over_all(part, [](A a, A b) { return a + b; });
  }
  template <class A>
  A maximum(A part) const {
    return over_all(part, [](A a, A b) { return b > a ? b : a; });
  }

 private:
  template <class A, class F>
  A over_all(A part, const F& f) const {
    static_assert(sizeof(A) <= sizeof(double));
    const auto slot = [&](std::size_t i) { return &shared_.parts[i]; };
    std::memcpy(slot(static_cast<std::size_t>(rank_)), &part, sizeof(A));
    sync();
    A result{};
    for (std::size_t i = 0; i < shared_.parts.size(); ++i) {
      A other;
      std::memcpy(&other, slot(i), sizeof(A));
      result = i == 0 ? other : f(result, other);
    }
    sync();  // before anyone writes again
    return result;
  }

  Shared& shared_;
  int rank_;
};

/// f(threads) in each of a team's threads. No template: what starts threads takes long to compile.
inline void run_threads(int size, const std::function<void(const HostThreads&)>& f) {
  HostThreads::Shared shared(size);
  std::vector<std::jthread> team;
  for (int rank = 0; rank < size; ++rank)
    team.emplace_back([&shared, &f, rank] { f(HostThreads(shared, rank)); });
}

}  // namespace ztrain::test
