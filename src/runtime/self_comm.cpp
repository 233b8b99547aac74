#include "runtime/self_comm.hpp"

#include <cstring>
#include <functional>

#include "base/error.hpp"
#include "runtime/rank_sum.hpp"

namespace ztrain::runtime {
namespace {

/// Does its work in start().
class Immediate : public Collective {
 public:
  explicit Immediate(std::function<void()> work) : work_(std::move(work)) {}
  void start() override {
    if (work_) work_();
  }
  bool test() override { return true; }
  void wait() override {}

 private:
  std::function<void()> work_;
};

std::unique_ptr<Collective> copy(const void* from, void* to, std::int64_t bytes) {
  if (from == to || bytes == 0) return std::make_unique<Immediate>(nullptr);
  return std::make_unique<Immediate>([=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); });
}

}  // namespace

std::unique_ptr<Collective> SelfCommunicator::all_gather(const void* shard, void* full, std::int64_t bytes) {
  return copy(shard, full, bytes);
}

std::unique_ptr<Collective> SelfCommunicator::reduce_scatter(const void* full, DType in, void* shard,
                                                             DType out, std::int64_t count, bool accumulate,
                                                             void*, std::int64_t) {
  const RankSum sum = rank_sum(in, out, accumulate);
  if (in == out && !accumulate) return copy(full, shard, count * size_of(in));
  return std::make_unique<Immediate>([=] { sum(&full, 1, shard, count); });
}

std::unique_ptr<Collective> SelfCommunicator::all_reduce(const void* from, void* to, DType type,
                                                         std::int64_t count, void*) {
  rank_sum(type, type, false);  // refuses the same types as a larger group
  return copy(from, to, count * size_of(type));
}

std::unique_ptr<Collective> SelfCommunicator::broadcast(void*, std::int64_t, int) {
  return std::make_unique<Immediate>(nullptr);
}

std::unique_ptr<Collective> SelfCommunicator::all_to_all(const void* in, void* out, std::int64_t bytes) {
  return copy(in, out, bytes);
}

std::unique_ptr<Collective> SelfCommunicator::send(const void*, std::int64_t, int to) {
  fail("send to rank {} of a group of one rank", to);
}

std::unique_ptr<Collective> SelfCommunicator::recv(void*, std::int64_t, int from) {
  fail("receive from rank {} of a group of one rank", from);
}

}  // namespace ztrain::runtime
