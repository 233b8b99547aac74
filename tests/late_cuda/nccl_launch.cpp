#include "tests/late_cuda/nccl_launch.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/clock.hpp"
#include "base/dtype.hpp"
#include "base/error.hpp"
#include "tests/late_cuda/late_cuda.hpp"

namespace late_nccl {

/// Whose turn it is on the device, where that holds one launch at a time.
class Turns {
 public:
  static const std::shared_ptr<Turns>& get() {
    static const auto turns = std::make_shared<Turns>();
    return turns;
  }
  std::uint64_t issue() {
    const std::lock_guard lock(mutex_);
    waiting_.insert(++issued_);
    return issued_;
  }
  bool take(const void* launch, std::uint64_t ticket) {
    if (!Library::get().options.one_at_a_time) return true;
    const char* const ordered = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    const std::lock_guard lock(mutex_);
    if (running_ != nullptr) return false;
    if (ordered != nullptr && *ordered == '1' && ticket != 0 && ticket != *waiting_.begin()) return false;
    running_ = launch;
    return true;
  }
  void end(const void* launch, std::uint64_t ticket) {
    const std::lock_guard lock(mutex_);
    waiting_.erase(ticket);
    if (running_ == launch) running_ = nullptr;
  }

 private:
  std::mutex mutex_;
  std::uint64_t issued_ = 0;
  std::set<std::uint64_t> waiting_;
  const void* running_ = nullptr;
};

namespace {

bool collective(const Signature& call) {
  return call.kind < Kind::send;
}

template <class T>
void add(std::byte* sum, const std::byte* term, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, sum + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    std::memcpy(&b, term + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    a = static_cast<T>(static_cast<ztrain::acc_t<T>>(a) + static_cast<ztrain::acc_t<T>>(b));
    std::memcpy(sum + static_cast<std::size_t>(i) * sizeof(T), &a, sizeof(T));
  }
}

void add(int type, std::byte* sum, const std::byte* term, std::int64_t count) {
  switch (type) {
    case ncclFloat64:
      return add<double>(sum, term, count);
    case ncclFloat32:
      return add<float>(sum, term, count);
    case ncclBfloat16:
      return add<ztrain::bf16>(sum, term, count);
    default:
      return add<ztrain::f16>(sum, term, count);
  }
}

}  // namespace

std::size_t element_bytes(int type) {
  switch (type) {
    case ncclFloat64:
    case ncclInt64:
    case ncclUint64:
      return 8;
    case ncclFloat32:
    case ncclInt32:
    case ncclUint32:
      return 4;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    default:
      return 1;
  }
}

bool sums(int type) {
  return type == ncclFloat64 || type == ncclFloat32 || type == ncclBfloat16 || type == ncclFloat16;
}

Launch::Launch(std::shared_ptr<ncclComm> comm, std::vector<Call> calls, bool captured)
    : comm_(std::move(comm)),
      calls_(std::move(calls)),
      turns_(Turns::get()),
      owner_(captured ? comm_->captured : comm_->under_way),
      ticket_(captured ? 0 : turns_->issue()) {}

Launch::~Launch() {
  turns_->end(this, ticket_);
}

bool Launch::step() {
  if (comm_->resources->aborted) {
    leave();
    return true;
  }
  try {
    const std::string failure = clique().failure();
    REQUIRE(failure.empty(), "{}", failure);
    const bool done = go_on();
    REQUIRE(done || ztrain::now() - progress_ < Library::get().options.patience,
            "a communicator makes no progress. {}", clique().waits());
    if (done) leave();
    return done;
  } catch (const ztrain::Error& error) {
    clique().fail(error.what());
    Library::get().remember(error.what());
    throw;
  }
}

bool Launch::go_on() {
  if (progress_ == 0) progress_ = ztrain::now();
  if (!begun_ && !begin()) return false;
  if (!compared_ && !compare()) return false;
  if (!move()) return false;
  const late_cuda::Open open;
  for (std::size_t i = 0; i < calls_.size(); ++i) finish(i);
  return true;
}

bool Launch::begin() {
  const bool turn = turns_->take(this, ticket_);
  say((turn ? "" : "for its turn on the device: ") + describe(calls_.front().signature));
  if (!turn) return false;
  begun_ = true;
  progress_ = ztrain::now();
  inbox_.resize(calls_.size());
  for (std::size_t i = 0; i < calls_.size(); ++i) prepare(i);
  post();
  return true;
}

/// For the messages of all ranks.
void Launch::say(const std::string& text) const {
  Rank& self = clique().self();
  self.waits[std::min(text.size(), sizeof self.waits - 1)] = '\0';
  text.copy(self.waits, sizeof self.waits - 1);
}

/// What a call moves.
void Launch::prepare(std::size_t index) {
  const Call& call = calls_[index];
  const Signature& s = call.signature;
  const int rank = clique().rank(), size = clique().size();
  const std::size_t bytes = static_cast<std::size_t>(s.count) * element_bytes(s.type);
  if (bytes == 0) return;
  const bool summed = s.kind == Kind::reduce || s.kind == Kind::reduce_scatter;
  if (summed) inbox_[index].assign(static_cast<std::size_t>(size), std::vector<std::byte>());
  const auto to_peer = [&](int peer, std::size_t at) {
    transfers_.push_back({true, peer, s, call.from + at, nullptr, bytes});
  };
  const auto from_peer = [&](int peer, std::byte* to) {
    if (summed) {
      auto& place = inbox_[index][static_cast<std::size_t>(peer)];
      place.resize(bytes);
      to = place.data();
    }
    transfers_.push_back({false, peer, s, nullptr, to, bytes});
  };
  if (s.kind == Kind::send) return to_peer(s.root, 0);
  if (s.kind == Kind::receive) return from_peer(s.root, call.to);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const std::size_t slot = static_cast<std::size_t>(peer) * bytes;
    if (s.kind == Kind::all_gather || s.kind == Kind::reduce_scatter) {
      to_peer(peer, s.kind == Kind::reduce_scatter ? slot : 0);
      from_peer(peer, call.to + (s.kind == Kind::all_gather ? slot : 0));
    } else if (s.kind == Kind::broadcast && (rank == s.root || peer == s.root)) {
      rank == s.root ? to_peer(peer, 0) : from_peer(peer, call.to);
    } else if (s.kind == Kind::reduce && (rank == s.root || peer == s.root)) {
      rank == s.root ? from_peer(peer, nullptr) : to_peer(peer, 0);
    }
  }
}

void Launch::post() {
  if (!std::any_of(calls_.begin(), calls_.end(), [](const Call& c) { return collective(c.signature); })) {
    compared_ = true;
    return;
  }
  number_ = ++comm_->collectives;
  Posted& mine = clique().self().posted[number_ % 2];
  mine.calls = 0;
  for (const Call& call : calls_)
    if (collective(call.signature)) mine.call[mine.calls++] = call.signature;
  mine.number.store(number_);
}

/// Once all have come. False: not yet.
bool Launch::compare() {
  const Posted& mine = clique().self().posted[number_ % 2];
  for (int r = 0; r < clique().size(); ++r)
    if (clique().board().rank[r].posted[number_ % 2].number.load() != number_) return false;
  for (int r = 0; r < clique().size(); ++r) {
    const Posted& theirs = clique().board().rank[r].posted[number_ % 2];
    for (int i = 0; i < std::max(mine.calls, theirs.calls); ++i) {
      const Signature &a = i < mine.calls ? mine.call[i] : Signature{},
                      &b = i < theirs.calls ? theirs.call[i] : Signature{};
      REQUIRE(a == b, "launch {} of collectives differs: rank {} has {}, rank {} has {}", number_,
              clique().rank(), describe(a), r, describe(b));
    }
  }
  compared_ = true;
  progress_ = ztrain::now();
  return true;
}

/// Messages between two ranks in one direction keep their order.
bool Launch::move() {
  bool blocked[2][most_ranks] = {}, all = true;
  for (Transfer& transfer : transfers_) {
    bool& behind = blocked[transfer.sends ? 1 : 0][transfer.peer];
    if (!transfer.done && !behind) transfer.done = transfer.sends ? push(transfer) : pull(transfer);
    behind = behind || !transfer.done;
    all = all && transfer.done;
  }
  return all;
}

bool Launch::push(Transfer& transfer) {
  Pipe& pipe = clique().board().pipe[clique().rank()][transfer.peer];
  if (pipe.written.load() != pipe.read.load()) return false;
  if (transfer.moved == transfer.bytes) return true;
  pipe.call = transfer.call;
  const late_cuda::Open open;
  pipe.bytes = std::min(transfer.bytes - transfer.moved, Pipe::room);
  std::memcpy(pipe.data, transfer.from + transfer.moved, pipe.bytes);
  transfer.moved += pipe.bytes;
  progress_ = ztrain::now();
  pipe.written.fetch_add(1);
  return false;
}

bool Launch::pull(Transfer& transfer) {
  Pipe& pipe = clique().board().pipe[transfer.peer][clique().rank()];
  if (pipe.written.load() == pipe.read.load()) return false;
  const Signature &mine = transfer.call, &theirs = pipe.call;
  const bool fits = mine.kind == Kind::receive ? theirs.kind == Kind::send : theirs.kind == mine.kind;
  REQUIRE(fits && mine.type == theirs.type && mine.count == theirs.count,
          "rank {} has {}, and what comes from rank {} is of its {}", clique().rank(), describe(mine),
          transfer.peer, describe(theirs));
  const late_cuda::Open open;
  std::memcpy(transfer.to + transfer.moved, pipe.data, pipe.bytes);
  transfer.moved += pipe.bytes;
  progress_ = ztrain::now();
  pipe.read.fetch_add(1);
  return transfer.moved == transfer.bytes;
}

/// What the rank does alone, at the end.
void Launch::finish(std::size_t index) const {
  const Call& call = calls_[index];
  const Signature& s = call.signature;
  const int rank = clique().rank();
  const std::size_t bytes = static_cast<std::size_t>(s.count) * element_bytes(s.type);
  if (s.kind == Kind::all_gather)
    std::memmove(call.to + static_cast<std::size_t>(rank) * bytes, call.from, bytes);
  if (s.kind == Kind::broadcast && rank == s.root) std::memmove(call.to, call.from, bytes);
  if ((s.kind != Kind::reduce || rank != s.root) && s.kind != Kind::reduce_scatter) return;
  const std::size_t slot = s.kind == Kind::reduce_scatter ? static_cast<std::size_t>(rank) * bytes : 0;
  std::vector<std::byte> own(call.from + slot, call.from + slot + bytes), sum;
  for (int r = 0; r < clique().size() && bytes > 0; ++r) {
    const auto& term = r == rank ? own : inbox_[index][static_cast<std::size_t>(r)];
    r == 0 ? void(sum = term) : add(s.type, sum.data(), term.data(), s.count);
  }
  std::memcpy(call.to, sum.data(), sum.size());
}

void Launch::leave() {
  say("");
  turns_->end(this, ticket_);
  transfers_.clear();
  inbox_.clear();
  begun_ = compared_ = false;
  progress_ = 0;
  number_ = 0;
  if (ticket_ != 0) owner_.reset();
}

}  // namespace late_nccl
