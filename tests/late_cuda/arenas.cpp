// Where arenas come from on GPUs: NCCL's memory on every rank, or on none.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/launch/exec.hpp"
#include "runtime/comm/nccl_backend.hpp"
#include "tests/late_cuda/late_device.hpp"
#include "tests/late_cuda/late_nccl.hpp"
#include "tests/support/mpi_main.hpp"
#include "tests/support/tiny_job.hpp"

namespace ztrain::arenas_test {
namespace {

using late_nccl::Fault;
using test::session;

constexpr std::int64_t mib = std::int64_t{1} << 20;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A job's memory on the late device, given back in a Worker's order.
struct Held {
  Held(const late_nccl::Options& options, runtime::NcclOptions nccl)
      : device((late_nccl::configure(options), test::make_late_device({}, session().local_rank()))),
        job(program::compile(model.graph(DType::bf16),
                             test::spec_of_ranks(model, "FULL_SHARD", session().size()), session().rank())),
        held(session(), *device),
        before(device->memory().limits().available),
        backend(std::make_unique<runtime::NcclBackend>(session(), device->cuda(), nccl)),
        arenas(job::allocate(session(), *device, *backend, held, job.programs.all(), {},
                             memory::Arena::Guards::on)),
        mesh(session(), job.train().mesh, std::move(backend)) {}

  std::int64_t taken() const { return before - device->memory().limits().available; }
  bool of_nccl() const { return &arenas.memory.provider() != &device->memory(); }

  test::TinyModel model;
  std::unique_ptr<test::LateDevice> device;
  program::Job job;
  job::HeldMemory held;
  std::int64_t before;
  std::unique_ptr<runtime::CommunicatorBackend> backend;
  job::Arenas arenas;
  runtime::Mesh mesh;
};

/// What a Held saw must have been given back.
void expect_nothing_left(std::int64_t before) {
  EXPECT_EQ(late_nccl::memories(), 0);
  EXPECT_EQ(late_nccl::registrations(), 0);
  const auto device = test::make_late_device({}, session().local_rank());
  EXPECT_EQ(device->memory().limits().available, before);
}

TEST(Arenas, AreOfNcclsMemoryAndRegistered) {
  std::int64_t before = 0;
  {
    Held job({}, {.of_one = true});
    before = job.before;
    EXPECT_TRUE(job.of_nccl());
    EXPECT_EQ(job.arenas.note, "");
    EXPECT_EQ(late_nccl::memories(), 2) << "kept between steps, within a step";
    const std::int64_t planned = job::HeldMemory::planned(*job.device, job.arenas.memory);
    EXPECT_GT(job.taken(), planned);
    EXPECT_EQ(job.held.arenas(), job.taken()) << "what NCCL rounds up to is counted";
    job.mesh.over(Axis::shard);
    const std::vector<engine::Note> notes = job::register_arenas(job.mesh, job.arenas);
    EXPECT_EQ(late_nccl::registrations(), 2);
    ASSERT_EQ(notes.size(), session().size() > 1 ? 1u : 0u);
    if (!notes.empty()) {
      EXPECT_EQ(notes[0].text, "registered with 1 of 1 communicators");
    }
    std::byte* const first = job.arenas.memory.address(job.job.train(), 0);
    int zero = 1;
    job.arenas.memory.provider().read(&zero, first, sizeof zero);
    EXPECT_EQ(zero, 0);
    job.arenas.memory.check_guards();
  }
  expect_nothing_left(before);
  EXPECT_EQ(late_nccl::failure(), "")
      << "each was given back by the function of its kind, and not registered";
}

/// If one rank cannot register the arenas, no rank does.
TEST(Arenas, AreSaidToBeRegisteredWithFewerCommunicators) {
  if (session().size() == 1) GTEST_SKIP() << "no communicator is of several ranks";
  Held job({.fault = session().rank() == 1 ? Fault::registration : Fault::none}, {.warning = "of the node"});
  job.mesh.over(Axis::shard);
  const std::vector<engine::Note> notes = job::register_arenas(job.mesh, job.arenas);
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_TRUE(contains(notes[0].text, "registered with 0 of 1 communicators; the others ")) << notes[0].text;
  EXPECT_EQ(late_nccl::registrations(), 0);
  EXPECT_EQ(notes[1].text, "of the node");
  EXPECT_TRUE(notes[1].warning);
}

TEST(Arenas, AreCudasOnAllRanksWhereNcclHasTooLittleOnOne) {
  const bool last = session().rank() == session().size() - 1;
  std::int64_t before = 0;
  {
    Held job({.fault = last ? Fault::memory : Fault::none}, {.of_one = true});
    before = job.before;
    EXPECT_FALSE(job.of_nccl());
    EXPECT_EQ(late_nccl::memories(), 0) << "the first is given back, too";
    const std::string& note = job.arenas.note;
    EXPECT_TRUE(contains(note, "the device's own memory, as what NCCL ")) << note;
    EXPECT_TRUE(contains(note, "ncclMemAlloc of ")) << note;
    EXPECT_EQ(contains(note, fmt::format("rank {}: ", session().size() - 1)), session().size() > 1) << note;
    EXPECT_EQ(session().from_rank_0(note), note);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "the next launch would report it";
    EXPECT_LE(job.taken(), job::HeldMemory::planned(*job.device, job.arenas.memory) + mib);
    job.arenas.memory.check_guards();
  }
  expect_nothing_left(before);
}

TEST(Arenas, AreCudasWhereNoCommunicatorIsNccls) {
  Held job({}, {.of_one = false});
  EXPECT_EQ(job.of_nccl(), session().size() > 1);
  EXPECT_EQ(job.arenas.note, "");
}

/// What connections take of the device is known before the arenas are, so that a full GPU is seen at the
/// start and not in the first step.
TEST(Arenas, ComeBehindConnections) {
  if (session().size() == 1) GTEST_SKIP() << "nothing is connected";
  kernels::initialize_backend();
  for (const bool full : {false, true}) {
    late_nccl::configure(
        {.patience = 20, .connection_bytes = static_cast<std::size_t>((full ? 1100 : 1) * mib)});
    const test::TinyModel model;
    auto device = test::make_late_device({}, session().local_rank());
    auto backend = std::make_unique<runtime::NcclBackend>(session(), device->cuda(), runtime::NcclOptions{});
    const job::Worker worker(session(), model.graph(DType::bf16),
                             test::spec_of_ranks(model, "FULL_SHARD", session().size()), job::WorkerOptions{},
                             {std::move(device), std::move(backend)});
    const bool told = std::ranges::any_of(worker.notes(), [](const engine::Note& note) {
      return contains(note.text, "of the device's memory to libraries, and 2.00 GiB are wanted");
    });
    EXPECT_EQ(told, full);
  }
  EXPECT_EQ(late_nccl::failure(), "");
}

/// Wants its arenas elsewhere, where there are so many bytes.
class Elsewhere final : public runtime::MpiBackend {
 public:
  explicit Elsewhere(std::int64_t available) : available_(available) {}
  std::unique_ptr<memory::Provider> arena_memory() const override;

 private:
  std::int64_t available_;
};

class HostMemory final : public memory::Provider {
 public:
  explicit HostMemory(std::int64_t available) : available_(available) {}
  std::byte* allocate(const std::string& name, std::int64_t bytes) override {
    return memory::host_memory().allocate(name, bytes);
  }
  void release(std::byte* data, std::int64_t bytes) noexcept override {
    memory::host_memory().release(data, bytes);
  }
  memory::MachineMemory limits() const override { return {available_, available_}; }

 private:
  std::int64_t available_;
};

std::unique_ptr<memory::Provider> Elsewhere::arena_memory() const {
  return std::make_unique<HostMemory>(available_);
}

/// What was rounded up must not take from libraries what the plan left to them.
TEST(Arenas, LeaveTheRestToLibraries) {
  const auto device = runtime::make_host_device();
  const test::TinyModel model;
  const program::Job job = program::compile(
      model.graph(DType::bf16), test::spec_of_ranks(model, "FULL_SHARD", session().size()), session().rank());
  for (const bool enough : {true, false}) {
    // Of all ranks but the last there is enough at any rate.
    const bool tight = !enough && session().rank() == session().size() - 1;
    job::HeldMemory held(session(), *device);
    const job::Arenas arenas =
        job::allocate(session(), *device, Elsewhere(2048 * mib - (tight ? 1 : 0)), held, job.programs.all());
    EXPECT_EQ(&arenas.memory.provider() == &device->memory(), !enough);
    EXPECT_EQ(contains(arenas.note, "to libraries, and 2.00 GiB are wanted"), !enough) << arenas.note;
  }
}

}  // namespace
}  // namespace ztrain::arenas_test
