#include "runtime/comm/staged_comm.hpp"

#include <algorithm>
#include <functional>
#include <vector>

#include "base/error.hpp"
#include "layout/comm_cost.hpp"
#include "runtime/comm/peers.hpp"
#include "runtime/comm/rank_sum.hpp"

namespace ztrain::runtime {
namespace {

/// `at` is an offset in the staging memory.
struct CopyOut {
  const void* from;
  std::int64_t at, bytes;
};
struct CopyIn {
  void* to;
  std::int64_t at, bytes;
};

/// Copies of a collective, and how it is prepared on the staging memory.
struct Staged {
  std::vector<CopyOut> out;
  std::vector<CopyIn> in;
  std::function<std::unique_ptr<Collective>(std::byte* staging)> prepare;
  std::int64_t bytes = 0;  ///< bytes of staging memory

  /// Returns the offset of a new place of this many bytes.
  std::int64_t place(std::int64_t wanted) {
    const std::int64_t at = bytes;
    bytes += staged_part(wanted);
    return at;
  }
  void copy_out(const void* from, std::int64_t at, std::int64_t n) {
    if (n > 0) out.push_back({from, at, n});
  }
  void copy_in(void* to, std::int64_t at, std::int64_t n) {
    if (n > 0) in.push_back({to, at, n});
  }
};

class StagedCollective final : public Collective {
 public:
  StagedCollective(std::shared_ptr<Staging> staging, Staged staged)
      : staging_(std::move(staging)), staged_(std::move(staged)) {
    staging_->reserve(staged_.bytes);
  }

  bool shares_memory() const override { return true; }

  void start() override {
    base_ = staging_->acquire();
    if (generation_ != staging_->generation()) {
      inner_ = staged_.prepare(base_);
      generation_ = staging_->generation();
    }
    Device& device = staging_->device();
    for (const CopyOut& copy : staged_.out)
      device.copy_out(staging_->queue(), base_ + copy.at, copy.from, copy.bytes);
    if (!staged_.out.empty()) {
      staging_->end().mark();
      staging_->end().wait();
    }
    inner_->start();
    state_ = State::communicates;
  }

  bool test() override {
    if (state_ == State::communicates && inner_->test()) copy_in();
    if (state_ == State::copies_in && staging_->end().reached()) complete();
    return state_ == State::idle;
  }

  void wait() override {
    if (state_ == State::communicates) {
      inner_->wait();
      copy_in();
    }
    if (state_ == State::copies_in) {
      staging_->end().wait();
      complete();
    }
  }

 private:
  enum class State { idle, communicates, copies_in };

  void copy_in() {
    for (const CopyIn& copy : staged_.in)
      staging_->device().copy_in(staging_->queue(), copy.to, base_ + copy.at, copy.bytes);
    if (staged_.in.empty()) return complete();
    staging_->end().mark();
    state_ = State::copies_in;
  }

  void complete() {
    state_ = State::idle;
    staging_->release();
  }

  std::shared_ptr<Staging> staging_;
  Staged staged_;
  std::unique_ptr<Collective> inner_;
  std::byte* base_ = nullptr;
  int generation_ = -1;
  State state_ = State::idle;
};

/// A queue has one of these communications in flight at a time. Order and lifetimes are those of
/// MpiCommunicator.
class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(std::unique_ptr<MpiCommunicator> inner, std::shared_ptr<Staging> staging)
      : inner_(std::move(inner)), staging_(std::move(staging)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::int64_t bytes_sent() const override { return inner_->bytes_sent(); }

  std::unique_ptr<Collective> all_gather(const void* shard, void* full, std::int64_t bytes) override {
    Staged s;
    const std::int64_t at = s.place(size() * bytes), own = rank() * bytes, behind = own + bytes;
    s.copy_out(shard, at + own, bytes);
    if (shard == moved(full, own)) {
      s.copy_in(full, at, own);
      s.copy_in(moved(full, behind), at + behind, size() * bytes - behind);
    } else {
      s.copy_in(full, at, size() * bytes);
    }
    s.prepare = [=, &inner = *inner_](std::byte* staging) {
      return inner.all_gather(staging + at + own, staging + at, bytes);
    };
    return std::make_unique<StagedCollective>(staging_, std::move(s));
  }

  std::unique_ptr<Collective> reduce_scatter(const void* full, DType in, void* shard, DType out,
                                             std::int64_t count, bool accumulate, void*,
                                             std::int64_t stride) override {
    rank_sum(in, out, accumulate);  // refuses types that cannot be summed before the first start
    const std::int64_t bytes = count * size_of(in), step = stride > 0 ? stride * size_of(in) : bytes;
    Staged s;
    const std::int64_t at = s.place(size() * bytes), result = s.place(count * size_of(out)),
                       workspace = s.place(reduce_scatter_workspace(inner_->sum_group(), in, count));
    if (step == bytes) {
      s.copy_out(full, at, size() * bytes);
    } else {
      for (int r = 0; r < size(); ++r) s.copy_out(moved(full, r * step), at + r * bytes, bytes);
    }
    if (accumulate) s.copy_out(shard, result, count * size_of(out));
    s.copy_in(shard, result, count * size_of(out));
    s.prepare = [=, &inner = *inner_](std::byte* staging) {
      return inner.reduce_scatter(staging + at, in, staging + result, out, count, accumulate,
                                  staging + workspace, count);
    };
    return std::make_unique<StagedCollective>(staging_, std::move(s));
  }

  std::unique_ptr<Collective> all_reduce(const void* from, void* to, DType type, std::int64_t count,
                                         void*) override {
    rank_sum(type, type, false);
    const std::int64_t bytes = count * size_of(type);
    Staged s;
    const std::int64_t at = s.place(bytes),
                       workspace = s.place(all_reduce_workspace(inner_->sum_group(), type, count));
    s.copy_out(from, at, bytes);
    s.copy_in(to, at, bytes);
    s.prepare = [=, &inner = *inner_](std::byte* staging) {
      return inner.all_reduce(staging + at, staging + at, type, count, staging + workspace);
    };
    return std::make_unique<StagedCollective>(staging_, std::move(s));
  }

  std::unique_ptr<Collective> broadcast(void* data, std::int64_t bytes, int root) override {
    require_root(*this, inner_->group(), root);
    Staged s;
    const std::int64_t at = s.place(bytes);
    if (rank() == root)
      s.copy_out(data, at, bytes);
    else
      s.copy_in(data, at, bytes);
    s.prepare = [=, &inner = *inner_](std::byte* staging) {
      return inner.broadcast(staging + at, bytes, root);
    };
    return std::make_unique<StagedCollective>(staging_, std::move(s));
  }

  std::unique_ptr<Collective> all_to_all(const void* in, void* out, std::int64_t bytes) override {
    Staged s;
    const std::int64_t sent = s.place(size() * bytes), received = s.place(size() * bytes);
    s.copy_out(in, sent, size() * bytes);
    s.copy_in(out, received, size() * bytes);
    s.prepare = [=, &inner = *inner_](std::byte* staging) {
      return inner.all_to_all(staging + sent, staging + received, bytes);
    };
    return std::make_unique<StagedCollective>(staging_, std::move(s));
  }

  std::unique_ptr<Collective> all_to_all_rows(const void* in, void* out, std::int64_t rows,
                                              std::int64_t row_bytes, const std::int32_t* sizes) override {
    const std::int64_t bytes = size() * rows * row_bytes,
                       of_sizes = 2 * size() * static_cast<std::int64_t>(sizeof(std::int32_t));
    Staged s;
    const std::int64_t sent = s.place(bytes), received = s.place(bytes), counts = s.place(of_sizes);
    s.copy_out(in, sent, bytes);
    s.copy_out(sizes, counts, of_sizes);
    s.copy_in(out, received, bytes);
    s.prepare = [=, &inner = *inner_](std::byte* staging) {
      return inner.all_to_all_rows(staging + sent, staging + received, rows, row_bytes,
                                   reinterpret_cast<const std::int32_t*>(staging + counts));
    };
    return std::make_unique<StagedCollective>(staging_, std::move(s));
  }

  std::unique_ptr<Collective> shift(const void* in, void* out, std::int64_t bytes, int by) override {
    ring_of(*this, inner_->group(), by);
    Staged s;
    const std::int64_t sent = s.place(bytes), received = s.place(bytes);
    s.copy_out(in, sent, bytes);
    s.copy_in(out, received, bytes);
    s.prepare = [=, &inner = *inner_](std::byte* staging) {
      return inner.shift(staging + sent, staging + received, bytes, by);
    };
    return std::make_unique<StagedCollective>(staging_, std::move(s));
  }

  std::unique_ptr<Collective> send(const void* data, std::int64_t bytes, int to) override {
    require_peer(*this, inner_->group(), to, "send to");
    Staged s;
    const std::int64_t at = s.place(bytes);
    s.copy_out(data, at, bytes);
    s.prepare = [=, &inner = *inner_](std::byte* staging) { return inner.send(staging + at, bytes, to); };
    return std::make_unique<StagedCollective>(staging_, std::move(s));
  }

  std::unique_ptr<Collective> recv(void* data, std::int64_t bytes, int from) override {
    require_peer(*this, inner_->group(), from, "receive from");
    Staged s;
    const std::int64_t at = s.place(bytes);
    s.copy_in(data, at, bytes);
    s.prepare = [=, &inner = *inner_](std::byte* staging) { return inner.recv(staging + at, bytes, from); };
    return std::make_unique<StagedCollective>(staging_, std::move(s));
  }

 private:
  std::unique_ptr<MpiCommunicator> inner_;
  std::shared_ptr<Staging> staging_;
};

}  // namespace

Staging::Staging(Device& device, Queue queue) : device_(device), queue_(queue), end_(device, queue) {}

Staging::~Staging() {
  if (data_ != nullptr) device_.staging().release(data_, allocated_);
}

void Staging::reserve(std::int64_t bytes) {
  reserved_ = std::max(reserved_, bytes);
}

std::byte* Staging::acquire() {
  REQUIRE(!in_use_, "two communications of queue {} are in flight at once, and its staging memory holds one",
          queue_);
  if (allocated_ < reserved_) {
    if (data_ != nullptr) device_.staging().release(data_, allocated_);
    data_ = nullptr;
    allocated_ = 0;
    data_ = device_.staging().allocate("staging of communications", reserved_);
    allocated_ = reserved_;
    ++generation_;
  }
  in_use_ = true;
  return data_;
}

std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<MpiCommunicator> inner,
                                                       std::shared_ptr<Staging> staging) {
  return std::make_unique<StagedCommunicator>(std::move(inner), std::move(staging));
}

}  // namespace ztrain::runtime
