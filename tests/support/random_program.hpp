#pragma once
// Random legal Programs: any stream, tensors written in parts through views, updated in place, released or
// not.

#include <algorithm>
#include <random>

#include "tests/support/programs.hpp"

namespace ztrain::test {

class RandomProgram : public Builder {
 public:
  RandomProgram(unsigned seed, int ops) : random_(seed) {
    for (int i = 0; i < 3; ++i) weights_.push_back(persistent("weight." + std::to_string(i), 64 + 32 * i));
    while (static_cast<int>(program.ops.size()) < ops) add();
  }
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

 private:
  struct Live {
    TensorId id;
    std::int64_t count, written;  ///< elements; the first `written` hold values
  };
  Stream any_stream() { return static_cast<Stream>(below(stream_count)); }
  Live& any_live() { return live_[static_cast<std::size_t>(below(static_cast<int>(live_.size())))]; }

  TensorId some_input() {
    if (live_.empty() || below(4) == 0) return weights_[static_cast<std::size_t>(below(3))];
    const Live& from = any_live();
    if (from.written == from.count && below(2) == 0) return from.id;
    const std::int64_t begin = below(static_cast<int>(from.written));
    return view("part of " + std::to_string(from.id), from.id, begin,
                1 + below(static_cast<int>(from.written - begin)));
  }

  void add() {
    const int choice = below(10);
    std::vector<TensorId> inputs{some_input(), some_input()};
    if (live_.size() > 12 || (choice == 0 && !live_.empty())) {
      const std::size_t gone = static_cast<std::size_t>(below(static_cast<int>(live_.size())));
      if (live_[gone].written == live_[gone].count) release(live_[gone].id, any_stream());
      live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(gone));
    } else if (choice <= 2 && !live_.empty()) {
      Live& to = any_live();
      if (to.written == to.count) {
        const std::int64_t begin = below(2) == 0 ? 0 : below(static_cast<int>(to.count));
        const TensorId part =
            view("changed part of " + std::to_string(to.id), to.id, begin, to.count - begin);
        op("update", any_stream(), {inputs[0], part}, {begin == 0 ? to.id : part});
        return;
      }
      const std::int64_t more = 1 + below(static_cast<int>(to.count - to.written));
      op("extend", any_stream(), inputs, {view("rest of " + std::to_string(to.id), to.id, to.written, more)});
      to.written += more;
    } else if (choice == 3) {
      const TensorId weight = weights_[static_cast<std::size_t>(below(3))];
      op("step", any_stream(), {inputs[0], weight}, {weight});
    } else {
      const std::int64_t count = 1 + below(400),
                         written = below(3) == 0 ? 1 + below(static_cast<int>(count)) : count;
      const TensorId made = transient("tensor." + std::to_string(program.tensors.size()), count);
      const TensorId out =
          written == count ? made : view("start of " + std::to_string(made), made, 0, written);
      op("make", any_stream(), inputs, {out});
      live_.push_back({made, count, written});
    }
  }

  std::mt19937 random_;
  std::vector<TensorId> weights_;
  std::vector<Live> live_;
};

}  // namespace ztrain::test
