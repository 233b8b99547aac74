#pragma once
// What the ranks of a communicator share: a file in memory that all of them map. Zeros are its beginning, so
// whoever comes first makes it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace late_nccl {

inline constexpr int most_ranks = 8, most_calls = 32;

enum class Kind : std::int32_t { none, all_gather, reduce_scatter, reduce, broadcast, send, receive };

/// A call as the other ranks see it.
struct Signature {
  Kind kind;
  std::int32_t type, op;  ///< of NCCL's enums; op of sums alone
  std::int32_t root;      ///< or the peer; -1: none
  std::int64_t count;
  std::int32_t registered;    ///< works on registered memory
  std::int32_t index, calls;  ///< within its group
  bool operator==(const Signature&) const = default;
};
/// "ncclReduce of 12 elements of type 7 to rank 1 (2 of a group of 4)"
std::string describe(const Signature& call);

/// The collectives that a rank launched at once. Two are kept, since who is at the next one has seen the
/// last.
struct Posted {
  std::atomic<std::uint64_t> number;  ///< counted from 1
  std::int32_t calls;
  Signature call[most_calls];
};

/// What one rank sends to another, piece by piece: the next is written when the last was read.
struct Pipe {
  static constexpr std::size_t room = 64 * 1024;
  std::atomic<std::uint64_t> written, read;
  Signature call;
  std::uint64_t bytes;
  std::byte data[room];
};

/// What a rank said in a split. Two are kept, as of Posted.
struct Split {
  std::atomic<std::uint64_t> number;  ///< counted from 1
  std::int32_t color, key;
};

struct Rank {
  std::atomic<int> came;
  std::atomic<int> size;  ///< of the communicator, as this rank was told; 0: it is not ready
  std::atomic<int> connected, finalized;
  std::atomic<std::uint32_t> sends, receives;  ///< a bit for each peer: the host has begun such a message
  Posted posted[2];
  Split split[2];
  char waits[200];  ///< for what, for messages
};

struct Board {
  std::atomic<int> failed;  ///< 1: somebody writes what, 2: it is written
  char failure[1500];
  Rank rank[most_ranks];
  Pipe pipe[most_ranks][most_ranks];  ///< from, to
};

/// A rank's place at the board of its communicator.
class Clique {
 public:
  /// Throws Error when the place is taken, or the file cannot be made.
  Clique(std::string name, int rank, int size);
  ~Clique();
  Clique(const Clique&) = delete;
  Clique& operator=(const Clique&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  Board& board() { return *board_; }
  Rank& self() { return board_->rank[rank_]; }
  /// Whether all are ready, of which this rank is one from now on. Throws Error when they do not agree on how
  /// many they are.
  bool complete();
  /// Whether the member has this value on all ranks, or more.
  bool all_reached(std::atomic<int> Rank::*member, int value) const;
  /// Whether the peer's host has begun to receive what this rank sends, or to send what it receives. This
  /// rank's has begun, from now on.
  bool connected(bool sends, int peer);
  /// Tells every rank; the first failure stays.
  void fail(const std::string& text);
  /// Empty: none.
  std::string failure() const;
  /// "rank 0 waits for ...; rank 1 ...", for messages.
  std::string waits() const;

 private:
  void unlink();

  std::string name_;
  int rank_, size_;
  bool linked_ = true;
  Board* board_ = nullptr;
};

}  // namespace late_nccl
