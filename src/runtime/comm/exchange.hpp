#pragma once
// A fixed set of point-to-point messages of one rank, prepared once and posted any number of times.

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ztrain::runtime {

/// MPI counts bytes in an int, and some transports dislike more than this in one message.
inline constexpr std::int64_t largest_message = (std::int64_t{1} << 30) - 4096;

class Exchange {
 public:
  /// comm and group (the group's name in messages) must outlive this. Messages longer than cut bytes are sent
  /// in parts.
  Exchange(MPI_Comm comm, const std::string& group, std::int64_t cut);

  /// Declares messages, receives first. Empty messages are left out on both sides.
  void receive(int from, void* data, std::int64_t bytes);
  void send(int to, const void* data, std::int64_t bytes);

  /// Posts all messages. Never allocates.
  void post(int tag);
  /// Returns true once all are complete. Throws Error naming call, peer and MPI's error string.
  bool test();

  std::int64_t bytes_sent() const { return bytes_sent_; }  ///< bytes that one post() sends

 private:
  struct Part {
    const void* source;  ///< null for a receive
    void* target;
    int bytes;
    int peer;
  };
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
