#pragma once
// A fixed set of point-to-point messages of one rank, prepared once and posted any number of times.

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ztrain::runtime {

/// MPI counts bytes in an int, and some transports dislike more than this in one message.
inline constexpr std::int64_t largest_message = (std::int64_t{1} << 30) - 4096;

/// How much of a message there is when it is posted: *count rows of so many bytes. Without a count it is
/// whole.
struct RowCount {
  const std::int32_t* count = nullptr;
  std::int64_t row_bytes = 0;
};

class Exchange {
 public:
  /// comm and group (the group's name in messages) must outlive this. Messages longer than cut bytes are sent
  /// in parts.
  Exchange(MPI_Comm comm, const std::string& group, std::int64_t cut);

  /// Declares messages, receives first. Empty messages are left out on both sides.
  void receive(int from, void* data, std::int64_t bytes, RowCount rows = {});
  void send(int to, const void* data, std::int64_t bytes, RowCount rows = {});

  /// Posts all messages. Never allocates. Throws Error if a message has more rows than it was declared for.
  void post(int tag);
  /// Returns true once all are complete. Throws Error naming call, peer and MPI's error string.
  bool test();

  std::int64_t bytes_sent() const { return bytes_sent_; }  ///< bytes that the last post() sent

 private:
  struct Part {
    const void* source;  ///< null for a receive
    void* target;
    int bytes;
    int peer;
    std::int64_t begin = 0, all = 0;  ///< where it begins in its message, and the bytes of that
    RowCount rows{};
  };
  void add(Part part, std::int64_t bytes, RowCount rows);
  /// Sets the part's bytes to those that there are now.
  void measure(Part& part) const;
  std::string describe(const Part& part) const;
  void check(const Part& part, int code, const char* call) const;

  MPI_Comm comm_;
  const std::string& group_;
  std::int64_t cut_;
  std::int64_t bytes_sent_ = 0;
  std::vector<Part> parts_;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace ztrain::runtime
