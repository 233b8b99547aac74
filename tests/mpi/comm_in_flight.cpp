// MPI communicators alone: many communications in flight at once, and messages that do not match.
#include <gtest/gtest.h>

#include "layout/comm_cost.hpp"
#include "tests/support/comm_group.hpp"

namespace ztrain::comm_in_flight_test {

using namespace ztrain::runtime;
using namespace ztrain::test;

TEST(CommInFlight, SendAndReceiveKeepTheirOrder) {
  CommGroup g(Via::mpi);
  if (g.size == 1) GTEST_SKIP() << "nobody to talk to";
  const int to = (g.rank + 1) % g.size, from = (g.rank + g.size - 1) % g.size;
  std::vector<std::vector<float>> out, in(3, std::vector<float>(50));
  std::vector<std::unique_ptr<Collective>> messages;
  for (int m = 0; m < 3; ++m) out.push_back(contribution<float>(10 * g.rank + m, 50));
  for (int m = 0; m < 3; ++m)
    messages.push_back(g.comm.recv(in[static_cast<std::size_t>(m)].data(), 200, from));
  for (int m = 0; m < 3; ++m)
    messages.push_back(g.comm.send(out[static_cast<std::size_t>(m)].data(), 200, to));
  for (auto& m : messages) m->start();
  for (auto m = messages.rbegin(); m != messages.rend(); ++m) (*m)->wait();
  for (int m = 0; m < 3; ++m)
    EXPECT_TRUE(same_bits(in[static_cast<std::size_t>(m)], contribution<float>(10 * from + m, 50)));
  EXPECT_EQ(g.comm.bytes_sent(), 600);
}

// Ranks wait in opposite orders; every all-reduce has a second phase that only its ranks' progress starts.
TEST(CommInFlight, ManyInFlightWaitedForInAnyOrder) {
  CommGroup g(Via::mpi);
  const int many = 12;
  const std::int64_t count = 3001;
  std::vector<std::vector<float>> data, gathered, expected;
  std::vector<std::vector<std::byte>> workspaces;
  std::vector<std::unique_ptr<Collective>> collectives;
  for (int c = 0; c < many; ++c) {
    data.push_back(contribution<float>(g.rank, count + c));
    gathered.emplace_back(static_cast<std::size_t>(g.size) * 16);
    workspaces.emplace_back(static_cast<std::size_t>(all_reduce_workspace(g.size, DType::f32, count + c)));
  }
  const auto shard = contribution<float>(g.rank, 16);
  for (int c = 0; c < many; ++c) {
    const auto i = static_cast<std::size_t>(c);
    collectives.push_back(
        g.comm.all_reduce(data[i].data(), data[i].data(), DType::f32, count + c, workspaces[i].data()));
    collectives.push_back(g.comm.all_gather(shard.data(), gathered[i].data(), 64));
  }
  for (auto& c : collectives) c->start();
  if (g.size > 1) {
    EXPECT_THROW(collectives.front()->start(), Error);
  }
  for (std::size_t i = 0; i < collectives.size(); ++i)
    collectives[g.rank % 2 == 0 ? i : collectives.size() - 1 - i]->wait();
  for (int c = 0; c < many; ++c)
    for (std::int64_t i = 0; i < count + c; ++i)
      ASSERT_EQ(data[static_cast<std::size_t>(c)][static_cast<std::size_t>(i)], serial_sum<float>(g.size, i));
  for (const auto& full : gathered)
    for (int r = 0; r < g.size; ++r)
      ASSERT_EQ(full[static_cast<std::size_t>(r) * 16 + 5], element<float>(r, 5));
}

TEST(CommInFlight, MismatchedSizesNameThePeer) {
  CommGroup g(Via::mpi);
  if (g.size != 2) GTEST_SKIP() << "one pair is enough";
  std::vector<float> data(64);
  const auto message = g.rank == 0 ? g.comm.send(data.data(), 100, 1) : g.comm.recv(data.data(), 200, 0);
  message->start();
  if (g.rank == 0) return message->wait();
  try {
    message->wait();
    ADD_FAILURE() << "a short message was taken for a whole one";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("from rank 0 of the group over shard got 100 bytes"),
              std::string::npos)
        << error.what();
  }
}

TEST(CommInFlight, TruncationNamesCallAndPeer) {
  CommGroup g(Via::mpi);
  if (g.size != 2) GTEST_SKIP() << "one pair is enough";
  std::vector<float> data(64);
  const auto message = g.rank == 0 ? g.comm.send(data.data(), 200, 1) : g.comm.recv(data.data(), 100, 0);
  message->start();
  if (g.rank == 0) return message->wait();
  try {
    message->wait();
    ADD_FAILURE() << "a message longer than its buffer was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("from rank 0 of the group over shard"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("essage truncated"), std::string::npos) << error.what();
  }
}

}  // namespace ztrain::comm_in_flight_test
