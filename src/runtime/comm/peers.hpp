#pragma once
// Does what communicators of all kinds do alike: finds places in buffers, and checks the ranks that a
// communication names, with the same words.

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "runtime/comm/comm.hpp"

namespace ztrain::runtime {

inline const std::byte* moved(const void* base, std::int64_t bytes) {
  return static_cast<const std::byte*>(base) + bytes;
}
inline std::byte* moved(void* base, std::int64_t bytes) {
  return static_cast<std::byte*>(base) + bytes;
}

inline void require_root(const Communicator& comm, const std::string& group, int root) {
  REQUIRE(root >= 0 && root < comm.size(), "broadcast from rank {} of the group over {}, which has {} ranks",
          root, group, comm.size());
}

/// Throws Error if there is no such peer. call is "send to" or "receive from".
inline void require_peer(const Communicator& comm, const std::string& group, int peer, const char* call) {
  REQUIRE(peer >= 0 && peer < comm.size() && peer != comm.rank(),
          "rank {} of the group over {} cannot {} rank {}: it has {} ranks", comm.rank(), group, call, peer,
          comm.size());
}

/// The ranks to which a member sends in a shift, and from which it receives.
struct Ring {
  int to, from;
};
inline Ring ring_of(const Communicator& comm, const std::string& group, int by) {
  REQUIRE(by > 0 && by < comm.size(), "a shift by {} of the group over {}, which has {} ranks", by, group,
          comm.size());
  return {(comm.rank() + by) % comm.size(), (comm.rank() + comm.size() - by) % comm.size()};
}

}  // namespace ztrain::runtime
