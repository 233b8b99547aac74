// Collectives against serial arithmetic: every rank can compute what every other contributes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "layout/comm_cost.hpp"
#include "runtime/mesh_comms.hpp"
#include "runtime/rank_sum.hpp"
#include "tests/support/mpi_main.hpp"

using namespace ztrain;
using namespace ztrain::runtime;

namespace {

// The mesh of all ranks along one axis. A size of one makes SelfCommunicator, so the same tests cover it.
struct Group {
  explicit Group(std::int64_t cut = largest_message)
      : mesh(test::session(), shape(), cut),
        comm(mesh.over(Axis::shard)),
        rank(comm.rank()),
        size(comm.size()) {}
  static MeshShape shape() {
    MeshShape s;
    s[Axis::shard] = test::session().size();
    return s;
  }
  Mesh mesh;
  Communicator& comm;
  int rank, size;
};

/// Magnitudes over seven decades, so that another order of the sum gives other bits. Not inlined: its product
/// must not be fused with the caller's sum.
[[gnu::noinline]] double value(int rank, std::int64_t i) {
  const double angle = 1.0 + 0.37 * static_cast<double>(i) + 2.1 * rank;
  return std::sin(angle) * std::pow(10.0, static_cast<double>((i * 7 + rank * 3) % 8) - 4);
}

template <class T>
T element(int rank, std::int64_t i) {
  return static_cast<T>(static_cast<acc_t<T>>(value(rank, i)));
}

template <class T>
std::vector<T> contribution(int rank, std::int64_t count) {
  std::vector<T> data(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) data[static_cast<std::size_t>(i)] = element<T>(rank, i);
  return data;
}

/// The sum over ranks of element i, from rank 0 up, in the accumulator type.
template <class In>
acc_t<In> serial_sum(int size, std::int64_t i) {
  acc_t<In> sum = static_cast<acc_t<In>>(element<In>(0, i));
  for (int r = 1; r < size; ++r) sum += static_cast<acc_t<In>>(element<In>(r, i));
  return sum;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

void run(const std::unique_ptr<Collective>& collective) {
  collective->start();
  collective->wait();
  EXPECT_TRUE(collective->test());
}

template <class In, class Out>
void check_reduce_scatter(Group& g, std::int64_t count, bool accumulate) {
  const auto full = contribution<In>(g.rank, count * g.size);
  std::vector<Out> shard = contribution<Out>(77 + g.rank, count), expected = shard;
  std::vector<std::byte> workspace(
      static_cast<std::size_t>(reduce_scatter_workspace(g.size, dtype_of<In>(), count)));
  using Wide = std::common_type_t<acc_t<In>, acc_t<Out>>;
  for (std::int64_t i = 0; i < count; ++i) {
    Out& e = expected[static_cast<std::size_t>(i)];
    Wide sum = serial_sum<In>(g.size, g.rank * count + i);
    if (accumulate) sum = static_cast<Wide>(static_cast<acc_t<Out>>(e)) + sum;
    e = static_cast<Out>(static_cast<acc_t<Out>>(sum));
  }
  const std::int64_t before = g.comm.bytes_sent();
  run(g.comm.reduce_scatter(full.data(), dtype_of<In>(), shard.data(), dtype_of<Out>(), count, accumulate,
                            workspace.data()));
  EXPECT_TRUE(same_bits(shard, expected)) << name_of(dtype_of<In>()) << " to " << name_of(dtype_of<Out>())
                                          << " count " << count << " accumulate " << accumulate;
  EXPECT_EQ(g.comm.bytes_sent() - before, reduce_scatter_sent(g.size, dtype_of<In>(), count));
}

template <class In>
void check_reduce_scatters(Group& g) {
  for (const std::int64_t count : {1, 7, 256, 5001})
    for (const bool accumulate : {false, true}) {
      check_reduce_scatter<In, float>(g, count, accumulate);
      check_reduce_scatter<In, bf16>(g, count, accumulate);
      check_reduce_scatter<In, double>(g, count, accumulate);
    }
}

template <class T>
void check_all_reduce(Group& g, std::int64_t count) {
  auto data = contribution<T>(g.rank, count);
  auto expected = data;
  for (std::int64_t i = 0; i < count && g.size > 1; ++i)
    expected[static_cast<std::size_t>(i)] = static_cast<T>(serial_sum<T>(g.size, i));
  // Not a byte more than the formula's workspace is touched.
  const auto bytes = static_cast<std::size_t>(all_reduce_workspace(g.size, dtype_of<T>(), count));
  std::vector<std::byte> workspace(bytes + 64, std::byte{0x5A});
  const std::int64_t before = g.comm.bytes_sent();
  const auto reduce = g.comm.all_reduce(data.data(), dtype_of<T>(), count, workspace.data());
  run(reduce);
  EXPECT_TRUE(same_bits(data, expected)) << name_of(dtype_of<T>()) << " count " << count;
  for (std::size_t i = bytes; i < workspace.size(); ++i) EXPECT_EQ(workspace[i], std::byte{0x5A});
  EXPECT_EQ(g.comm.bytes_sent() - before, all_reduce_sent(g.size, g.rank, dtype_of<T>(), count));
  const auto again = contribution<T>(g.rank, count);
  std::copy(again.begin(), again.end(), data.begin());  // a prepared collective keeps its addresses
  run(reduce);
  EXPECT_TRUE(same_bits(data, expected)) << "second start, count " << count;
}

}  // namespace

TEST(Comm, AllGatherOutOfPlaceAndInPlace) {
  Group g;
  for (const std::int64_t count : {0, 1, 3, 1000}) {
    const auto shard = contribution<float>(g.rank, count);
    std::vector<float> full(static_cast<std::size_t>(count * g.size), -1.0f), expected;
    for (int r = 0; r < g.size; ++r) {
      const auto theirs = contribution<float>(r, count);
      expected.insert(expected.end(), theirs.begin(), theirs.end());
    }
    const std::int64_t bytes = count * 4, before = g.comm.bytes_sent();
    run(g.comm.all_gather(shard.data(), full.data(), bytes));
    EXPECT_TRUE(same_bits(full, expected));
    EXPECT_EQ(g.comm.bytes_sent() - before, all_gather_sent(g.size, bytes));

    std::vector<float> in_place(full.size(), -1.0f);
    std::copy(shard.begin(), shard.end(), in_place.begin() + g.rank * count);
    run(g.comm.all_gather(in_place.data() + g.rank * count, in_place.data(), bytes));
    EXPECT_TRUE(same_bits(in_place, expected));
  }
}

TEST(Comm, ReduceScatterSumsInRankOrder) {
  Group g;
  check_reduce_scatters<float>(g);
  check_reduce_scatters<bf16>(g);
  check_reduce_scatters<double>(g);
}

TEST(Comm, Fp16IsSummedInFp32) {
  Group g;
  for (const std::int64_t count : {1, 7, 256, 5001})
    for (const bool accumulate : {false, true}) {
      check_reduce_scatter<f16, f16>(g, count, accumulate);
      check_reduce_scatter<f16, float>(g, count, accumulate);
      check_reduce_scatter<float, f16>(g, count, accumulate);
    }
}

TEST(Comm, ReduceScatterIntoItsOwnSlot) {
  Group g;
  const std::int64_t count = 333;
  auto full = contribution<float>(g.rank, count * g.size);
  std::vector<std::byte> workspace(
      static_cast<std::size_t>(reduce_scatter_workspace(g.size, DType::f32, count)));
  float* own = full.data() + g.rank * count;
  run(g.comm.reduce_scatter(full.data(), DType::f32, own, DType::f32, count, false, workspace.data()));
  for (std::int64_t i = 0; i < count; ++i) EXPECT_EQ(own[i], serial_sum<float>(g.size, g.rank * count + i));
}

// Sixteen times 1 + 2^-8: each partial sum in bf16 would drop the small part.
TEST(Comm, Bf16IsSummedInFp32) {
  Group g;
  if (g.size < 4) GTEST_SKIP() << "needs a sum of four";
  std::vector<bf16> full(static_cast<std::size_t>(g.size), bf16(g.rank == 0 ? 256.0f : 0.5f));
  std::vector<std::byte> workspace(
      static_cast<std::size_t>(reduce_scatter_workspace(g.size, DType::bf16, 1)));
  bf16 sum(0.0f);
  run(g.comm.reduce_scatter(full.data(), DType::bf16, &sum, DType::bf16, 1, false, workspace.data()));
  // 256 + 3 * 0.5 = 257.5, whose nearest bf16 is 258; rounding after each addition stays at 256.
  EXPECT_EQ(static_cast<float>(sum), 258.0f);
}

TEST(Comm, AllReduceAnyCount) {
  Group g;
  for (const std::int64_t count : {0, 1, 2, 3, 5, 8, 4099}) {
    check_all_reduce<float>(g, count);
    check_all_reduce<bf16>(g, count);
    check_all_reduce<f16>(g, count);
    check_all_reduce<double>(g, count);
  }
}

TEST(Comm, BroadcastFromEveryRoot) {
  Group g;
  for (int root = 0; root < g.size; ++root) {
    auto data = contribution<double>(g.rank, 129);
    const std::int64_t bytes = 129 * 8, before = g.comm.bytes_sent();
    run(g.comm.broadcast(data.data(), bytes, root));
    EXPECT_TRUE(same_bits(data, contribution<double>(root, 129)));
    EXPECT_EQ(g.comm.bytes_sent() - before, broadcast_sent(g.size, g.rank, root, bytes));
  }
}

TEST(Comm, AllToAllTransposes) {
  Group g;
  const std::int64_t count = 37, bytes = count * 4;
  const auto in = contribution<float>(g.rank, count * g.size);
  std::vector<float> out(in.size(), -1.0f);
  const std::int64_t before = g.comm.bytes_sent();
  run(g.comm.all_to_all(in.data(), out.data(), bytes));
  for (int s = 0; s < g.size; ++s)
    for (std::int64_t i = 0; i < count; ++i)
      EXPECT_EQ(out[static_cast<std::size_t>(s * count + i)], element<float>(s, g.rank * count + i));
  EXPECT_EQ(g.comm.bytes_sent() - before, all_to_all_sent(g.size, bytes));
}

TEST(Comm, SendAndReceiveKeepTheirOrder) {
  Group g;
  if (g.size == 1) {
    EXPECT_THROW(g.comm.send(nullptr, 0, 0), Error);
    return;
  }
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
  EXPECT_THROW(g.comm.send(nullptr, 0, g.rank), Error);
  EXPECT_THROW(g.comm.recv(nullptr, 0, g.size), Error);
}

// All of the above arithmetic with messages of at most 100 bytes: parts end inside an element.
TEST(Comm, CutMessagesArriveWhole) {
  Group g(/*cut=*/100);
  check_reduce_scatters<bf16>(g);
  check_reduce_scatters<double>(g);
  check_all_reduce<float>(g, 4099);
  const auto shard = contribution<double>(g.rank, 777);
  std::vector<double> full(static_cast<std::size_t>(777 * g.size));
  run(g.comm.all_gather(shard.data(), full.data(), 777 * 8));
  for (int r = 0; r < g.size; ++r)
    for (std::int64_t i = 0; i < 777; ++i)
      ASSERT_EQ(full[static_cast<std::size_t>(r * 777 + i)], element<double>(r, i));
}

// Ranks wait in opposite orders; every all-reduce has a second phase that only its ranks' progress starts.
TEST(Comm, ManyInFlightWaitedForInAnyOrder) {
  Group g;
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
    collectives.push_back(g.comm.all_reduce(data[i].data(), DType::f32, count + c, workspaces[i].data()));
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

TEST(Comm, MismatchedSizesNameThePeer) {
  Group g;
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

TEST(Comm, TruncationNamesCallAndPeer) {
  Group g;
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
    EXPECT_NE(std::string(error.what()).find("TRUNCATE"), std::string::npos) << error.what();
  }
}

TEST(Comm, OtherTypesAreRefused) {
  Group g;
  std::int64_t data = 0;
  EXPECT_THROW(g.comm.all_reduce(&data, DType::i64, 1, nullptr), Error);
  EXPECT_THROW(g.comm.reduce_scatter(&data, DType::f32, &data, DType::u8, 1, false, nullptr), Error);
  EXPECT_THROW(g.comm.reduce_scatter(&data, DType::f16, &data, DType::bf16, 1, false, nullptr), Error);
}
