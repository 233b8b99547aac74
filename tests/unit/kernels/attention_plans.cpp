// The plans that cuDNN makes of our graphs, without a GPU: it is told of one by its properties, compiles for
// it, and loads what it compiled through a driver library made for this test (tests/support/make_driver.py),
// which does nothing. What GPUs would compute is not seen here: that they are supported, compiled and fit
// their workspace is.

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <ostream>
#include <set>
#include <utility>
#include <vector>

#include "kernels/attention/attention_graph_cudnn.hpp"
#include "tests/support/pairwise.hpp"

namespace ztrain::kernels::attention_plans_test {
namespace {

using enum AttentionWay;

/// What tells GPUs apart, as cuDNN's JSON has it.
struct Gpu {
  const char* name;
  int sm;
  std::int64_t processors, shared_memory, memory, l2;  ///< bytes: of a block at most, of the device
  std::int64_t clock, memory_clock;                    ///< kHz
};

void PrintTo(const Gpu& g, std::ostream* out) {
  *out << g.name;
}

constexpr Gpu h100{"NVIDIA H100 80GB HBM3", 90, 132, 232448, 85017755648, 52428800, 1980000, 2619000};
constexpr Gpu h200{"NVIDIA H200", 90, 132, 232448, 150110011392, 62914560, 1980000, 3201000};
constexpr Gpu a100{"NVIDIA A100-SXM4-80GB", 80, 108, 166912, 85098233856, 41943040, 1410000, 1593000};

std::string properties_of(const Gpu& g) {
  return fmt::format(
      R"({{"deviceVer": {}, "deviceName": "{}", "multiProcessorCount": {}, "maxSharedMemoryPerBlockOptin": {},
           "totalGlobalMem": {}, "l2CacheSize": {}, "smClockRateKHz": {}, "memClockRateKHz": {},
           "maxSharedMemoryPerBlock": 49152, "reservedSharedMemoryPerBlock": 1024, "warpSize": 32,
           "maxRegistersPerSM": 65536, "regsPerBlock": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
           "maxThreadsPerSM": 2048, "maxBlockSize": [1024, 1024, 64], "maxGridSize": [2147483647, 65535, 65535],
           "supportCoopLaunch": 1, "isTccDriver": 0, "pciDeviceId": 0, "cudaDeviceId": 0, "driverVer": 13000}})",
      10 * g.sm, g.name, g.processors, g.shared_memory, g.memory, g.l2, g.clock, g.memory_clock);
}

struct Heads {
  std::int64_t query, kv, dim;
};
/// q, k and v as three matrices, or as columns of one.
enum class Rows { split, joined };

AttentionShape shape_of(const Heads& h, Rows rows, std::int64_t sequence, std::int64_t sequences_at_once) {
  AttentionShape s{sequence * sequences_at_once, h.query, h.kv, h.dim};
  s.sequence = sequence;
  if (rows == Rows::joined) s.row = (h.query + 2 * h.kv) * h.dim;
  return s;
}

AttentionRequest request_of(const AttentionShape& s, AttentionWay way, bool backward,
                            DType type = DType::bf16) {
  return {s, type, attention_work_of(s, type, way, backward), backward};
}

std::string text_of(const AttentionRequest& r) {
  return fmt::format(
      "{} {} of {}: {} tokens in sequences of {}, heads {}/{} of {}, row {}, window {}, {} documents{}",
      name_of(r.work.way), r.backward ? "backward" : "forward", name_of(r.type), r.shape.tokens,
      r.shape.sequence, r.shape.heads, r.shape.kv_heads, r.shape.head_dim, r.shape.row, r.shape.window,
      r.shape.documents, r.shape.deterministic ? ", deterministic" : "");
}

class AttentionPlans : public ::testing::TestWithParam<Gpu> {
 protected:
  void SetUp() override {
    if (cudnnGetVersion() < 90800) GTEST_SKIP() << "cuDNN takes the properties of a device from 9.8 on";
  }

  struct Chosen {
    CudnnGraph graph;
    std::string why_not;
  };
  static Chosen choose(const Gpu& gpu, const AttentionRequest& request) {
    Chosen c{describe_attention(request, gpu.sm), {}};
    c.why_not = choose_plans(*c.graph, {nullptr, properties_of(gpu)}, request);
    return c;
  }
  static Chosen compile(const Gpu& gpu, const AttentionRequest& request) {
    Chosen c = choose(gpu, request);
    if (c.why_not.empty()) c.why_not = compile_plan(*c.graph, request);
    return c;
  }
};

/// Ampere's backward took no packed documents when this was written; all else is supported on both.
bool lacks(const Gpu& gpu, const AttentionRequest& r) {
  return gpu.sm < 90 && r.backward && r.work.way == documents;
}

void expect_supported(const Gpu& gpu, const AttentionRequest& r, const std::string& why_not) {
  EXPECT_TRUE(why_not.empty() || lacks(gpu, r)) << gpu.name << ", " << text_of(r) << ": " << why_not;
}

std::vector<AttentionRequest> requests_of(const AttentionShape& s, DType type) {
  std::vector<AttentionRequest> all;
  for (const bool backward : {false, true}) {
    const AttentionWays ways = attention_ways(s, type, backward);
    EXPECT_GT(ways.count, 1) << "only the streaming kernels were left";
    // Forward does not look at it.
    const int count = !backward && s.deterministic ? 0 : ways.count - 1;
    for (int i = 0; i < count; ++i)
      all.push_back(request_of(s, ways.way[static_cast<std::size_t>(i)], backward, type));
  }
  return all;
}

std::vector<AttentionShape> shapes_of_models() {
  // MHA of 64 and 128; Qwen2.5 0.5B, Llama 3 8B, Qwen2.5 7B, and that on four ranks of tensor parallelism.
  constexpr std::array<Heads, 6> heads{
      {{12, 12, 64}, {32, 32, 128}, {14, 2, 64}, {32, 8, 128}, {28, 4, 128}, {7, 1, 128}}};
  constexpr std::array<std::int64_t, 3> documents{2, 40, 0};
  std::vector<AttentionShape> shapes;
  for (const std::vector<int>& row : test::rows_of({6, 3, 2, 2, 2, 2})) {
    shapes.push_back(shape_of(heads.at(static_cast<std::size_t>(row[0])),
                              row[2] == 0 ? Rows::split : Rows::joined, row[3] == 0 ? 1000 : 2048, 2));
    shapes.back().documents = documents.at(static_cast<std::size_t>(row[1]));
    shapes.back().window = row[4] == 0 ? 0 : 512;
    shapes.back().deterministic = row[5] == 0;
  }
  return shapes;
}

TEST_P(AttentionPlans, SupportEveryWayOfTheModels) {
  std::set<std::pair<AttentionWay, bool>> checked;
  for (const AttentionShape& s : shapes_of_models())
    for (const AttentionRequest& r : requests_of(s, s.documents == 2 ? DType::f16 : DType::bf16)) {
      expect_supported(GetParam(), r, choose(GetParam(), r).why_not);
      checked.emplace(r.work.way, r.backward);
    }
  EXPECT_EQ(checked.size(), 6) << "not every way, forward and backward";
}

/// What is compiled, which takes about a second each.
std::vector<AttentionRequest> selection() {
  const auto with = [](AttentionShape s, std::int64_t documents, bool deterministic,
                       std::int64_t window = 0) {
    s.documents = documents;
    s.deterministic = deterministic;
    s.window = window;
    return s;
  };
  const AttentionShape llama = shape_of({32, 8, 128}, Rows::joined, 2048, 4),
                       qwen = shape_of({14, 2, 64}, Rows::joined, 2048, 4),
                       wide = shape_of({28, 4, 128}, Rows::split, 1024, 4),
                       odd = shape_of({28, 4, 128}, Rows::joined, 1000, 4),
                       single = shape_of({12, 12, 64}, Rows::joined, 1024, 8);
  return {
      request_of(with(llama, 4, true), sequences, false),
      request_of(with(llama, 4, true), sequences, true),
      request_of(with(wide, 32, false), documents, false),
      request_of(with(odd, 32, false), documents, true),
      request_of(with(odd, 0, true), masked, false),
      request_of(with(wide, 0, true), masked, true),
      request_of(with(qwen, 4, false, 512), sequences, true),
      request_of(with(single, 8, false, 512), sequences, false),
      request_of(with(single, 64, false), documents, true),
      request_of(with(qwen, 0, false), masked, true),
  };
}

TEST_P(AttentionPlans, FitTheWorkspaceThatIsReserved) {
  std::vector<AttentionRequest> requests = selection();
  if (GetParam().name == a100.name) requests.resize(6);  // each way, forward and backward
  if (GetParam().name == h200.name) requests.resize(2);  // it differs from an H100 by its memory alone
  for (const AttentionRequest& r : requests) {
    SCOPED_TRACE(fmt::format("{}, {}", GetParam().name, text_of(r)));
    const Chosen plan = compile(GetParam(), r);
    expect_supported(GetParam(), r, plan.why_not);
    if (!plan.why_not.empty()) continue;
    const std::int64_t workspace = workspace_of(*plan.graph), room = r.work.end - r.work.library;
    EXPECT_LE(workspace, room);
    if (r.backward) {
      EXPECT_GT(workspace, 0);
    }
    for (const std::int64_t uid : pointers_of(*plan.graph)) {
      EXPECT_GE(uid, static_cast<std::int64_t>(AttentionTensor::q));
      EXPECT_LE(uid, static_cast<std::int64_t>(AttentionTensor::lse_offsets));
    }
  }
}

using AttentionPlansOfOne = AttentionPlans;
INSTANTIATE_TEST_SUITE_P(H100, AttentionPlansOfOne, ::testing::Values(h100));

TEST_P(AttentionPlansOfOne, AreMadeOnTheDriverOfTheTests) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(driver, nullptr);
  EXPECT_NE(dlsym(driver, "ztrain_driver_of_tests"), nullptr);
}

/// With exactly the bytes that a plan needs it is taken; with one less another that needs less, or none.
TEST_P(AttentionPlansOfOne, TakeNoByteMoreThanTheyAreGiven) {
  AttentionShape s = shape_of({14, 2, 64}, Rows::joined, 512, 2);
  s.documents = 2;
  AttentionRequest r = request_of(s, sequences, true);
  const auto compile_in = [&](std::int64_t room) {
    r.work.end = r.work.library + room;
    return compile(GetParam(), r);
  };
  Chosen plan = compile_in(r.work.end - r.work.library);
  ASSERT_EQ(plan.why_not, "");
  std::int64_t needed = workspace_of(*plan.graph);
  plan = compile_in(needed);
  ASSERT_EQ(plan.why_not, "");
  EXPECT_EQ(workspace_of(*plan.graph), needed);
  constexpr int most = 10;
  for (int plans = 0; plan.why_not.empty() && plans < most; ++plans) {
    plan = compile_in(needed - 1);
    if (!plan.why_not.empty()) continue;
    ASSERT_LT(workspace_of(*plan.graph), needed);
    needed = workspace_of(*plan.graph);
  }
  EXPECT_NE(plan.why_not.find(fmt::format("above the {} reserved", needed - 1)), std::string::npos)
      << plan.why_not;
}

TEST_P(AttentionPlansOfOne, SayWhatTheLibraryRefuses) {
  AttentionShape s = shape_of({32, 8, 128}, Rows::joined, 2048, 2);
  s.documents = 2;
  s.row += 4;  // rows do not begin on multiples of 16 bytes
  for (const bool backward : {false, true})
    EXPECT_NE(choose(GetParam(), request_of(s, sequences, backward)).why_not, "");
  s.row -= 4;
  const AttentionRequest r = request_of(s, sequences, false);
  EXPECT_NE(choose_plans(*describe_attention(r, 90), {nullptr, "no JSON"}, r), "");
  EXPECT_NE(choose_plans(*describe_attention(r, 90), {}, r), "") << "neither a handle nor properties";
}

TEST(EmptyDocuments, AreLeftToLibrariesThatPromiseThem) {
  AttentionShape s = shape_of({32, 8, 128}, Rows::joined, 2048, 2);
  s.documents = 40;
  for (const bool backward : {false, true}) {
    EXPECT_EQ(unpromised(request_of(s, documents, backward), 91900),
              "cuDNN 9.19 promises nothing of documents without tokens; 9.25 does");
    EXPECT_NE(unpromised(request_of(s, documents, backward), 92402), "");
    EXPECT_EQ(unpromised(request_of(s, documents, backward), 92500), "");
    for (const AttentionWay way : {sequences, masked})
      EXPECT_EQ(unpromised(request_of(s, way, backward), 91900), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Gpus, AttentionPlans, ::testing::Values(h100, h200, a100),
                         [](const auto& gpu) { return std::string(gpu.param.name).substr(7, 4); });

/// As the runtime asks it for functions.
TEST(TestDriver, HandsOutWhatItHasAndSaysWhatItLacks) {
  using LookUp = int (*)(const char*, void**, int, unsigned long long, int*);
  const auto look_up = reinterpret_cast<LookUp>(dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2"));
  ASSERT_NE(look_up, nullptr);
  int said = -1;
  void* found = &said;
  EXPECT_NE(look_up("cuOfNoVersion", &found, 13000, 0, &said), 0);
  EXPECT_EQ(found, nullptr);
  EXPECT_EQ(said, 1);
  EXPECT_EQ(look_up("cuMemAlloc", &found, 13000, 0, &said), 0);
  EXPECT_EQ(found, dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
  EXPECT_EQ(said, 0);
}

}  // namespace
}  // namespace ztrain::kernels::attention_plans_test
