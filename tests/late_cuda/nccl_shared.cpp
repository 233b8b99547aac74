#include "tests/late_cuda/nccl_shared.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace late_nccl {
namespace {

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::all_gather:
      return "ncclAllGather";
    case Kind::reduce_scatter:
      return "ncclReduceScatter";
    case Kind::reduce:
      return "ncclReduce";
    case Kind::broadcast:
      return "ncclBroadcast";
    case Kind::send:
      return "ncclSend";
    case Kind::receive:
      return "ncclRecv";
    default:
      return "nothing";
  }
}

}  // namespace

std::string describe(const Signature& call) {
  std::string text = fmt::format("{} of {} elements of type {}", name_of(call.kind), call.count, call.type);
  if (call.op >= 0) text += fmt::format(" (op {})", call.op);
  if (call.root >= 0) text += fmt::format(", {} {}", call.kind >= Kind::send ? "peer" : "root", call.root);
  if (call.calls > 1) text += fmt::format(", number {} of a group of {}", call.index + 1, call.calls);
  return text + (call.registered != 0 ? ", registered" : "");
}

Clique::Clique(std::string name, int rank, int size) : name_(std::move(name)), rank_(rank), size_(size) {
  REQUIRE(rank >= 0 && rank < size && size <= most_ranks, "rank {} of {} of {} at most", rank, size,
          most_ranks);
  const int file = shm_open(name_.c_str(), O_CREAT | O_RDWR, 0600);
  REQUIRE(file >= 0, "shm_open of {} failed: {}", name_, std::strerror(errno));
  const bool sized = ftruncate(file, sizeof(Board)) == 0;
  void* const mapped =
      sized ? mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  const int error = errno;
  close(file);
  REQUIRE(mapped != MAP_FAILED, "cannot map {}: {}", name_, std::strerror(error));
  board_ = static_cast<Board*>(mapped);
  if (self().came.exchange(1) == 0) return;
  munmap(board_, sizeof(Board));
  ztrain::fail("there are two ranks {} in {}", rank, name_);
}

Clique::~Clique() {
  // Whoever comes later must find it, or it would hear of no failure.
  if (all_reached(&Rank::came, 1)) unlink();
  munmap(board_, sizeof(Board));
}

void Clique::unlink() {
  if (linked_) shm_unlink(name_.c_str());
  linked_ = false;
}

bool Clique::complete() {
  self().size.store(size_);
  for (int r = 0; r < size_; ++r) {
    const int theirs = board_->rank[r].size.load();
    if (theirs == 0) return false;
    REQUIRE(theirs == size_, "rank {} is one of {} ranks, rank {} one of {}", rank_, size_, r, theirs);
  }
  unlink();  // nobody else looks for it
  return true;
}

bool Clique::all_reached(std::atomic<int> Rank::*member, int value) const {
  return std::all_of(board_->rank, board_->rank + size_,
                     [&](const Rank& r) { return (r.*member).load() >= value; });
}

bool Clique::connected(bool sends, int peer) {
  const auto bit = [](int rank) { return std::uint32_t{1} << static_cast<unsigned>(rank); };
  (sends ? self().sends : self().receives).fetch_or(bit(peer));
  const Rank& other = board_->rank[peer];
  return ((sends ? other.receives : other.sends).load() & bit(rank_)) != 0;
}

void Clique::fail(const std::string& text) {
  int none = 0;
  if (!board_->failed.compare_exchange_strong(none, 1)) return;
  std::strncpy(board_->failure, text.c_str(), sizeof board_->failure - 1);
  board_->failed.store(2);
}

std::string Clique::failure() const {
  return board_->failed.load() == 2 ? board_->failure : "";
}

std::string Clique::waits() const {
  std::string text;
  for (int r = 0; r < size_; ++r) {
    const char* const waits = board_->rank[r].waits;
    text += fmt::format("{}rank {}: {}", r == 0 ? "" : "; ", r, *waits == '\0' ? "in no operation" : waits);
  }
  return text;
}

}  // namespace late_nccl
