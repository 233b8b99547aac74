// What a rank holds of a device whose driver counts it, and of the node on CPU ranks.
#include "job/held_memory.hpp"

#include <gtest/gtest.h>

#include "tests/support/mpi_main.hpp"
#include "tests/support/recording_device.hpp"

namespace ztrain::job::held_memory_test {
namespace {

using test::session;

constexpr std::int64_t mib = std::int64_t{1} << 20, whole = 1000 * mib;

/// A driver that counts what it is told: all ranks of a node are on one GPU.
class CountedMemory final : public memory::Provider {
 public:
  std::int64_t in_use = 0;
  std::byte* allocate(const std::string& name, std::int64_t bytes) override {
    return memory::host_memory().allocate(name, bytes);
  }
  void release(std::byte* data, std::int64_t bytes) noexcept override {
    memory::host_memory().release(data, bytes);
  }
  bool host_accessible() const override { return false; }
  void fill(void*, int, std::int64_t) override {}
  void write(void*, const void*, std::int64_t) override {}
  void read(void*, const void*, std::int64_t) const override {}
  memory::MachineMemory limits() const override {
    return {whole, whole - in_use * session().ranks_on_node()};
  }
};

class CountedDevice final : public test::RecordingDevice {
 public:
  CountedMemory counted;
  const std::string& identity() const override { return identity_; }
  memory::Provider& memory() override { return counted; }

 private:
  std::string identity_ = "a GPU";
};

program::Program program_with(std::int64_t kept, std::int64_t on_host) {
  program::Program p;
  p.plan[static_cast<std::size_t>(program::Tier::device)].persistent_bytes = kept;
  p.plan[static_cast<std::size_t>(program::Tier::host)].persistent_bytes = on_host;
  return p;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(DeviceReadings, WhatIsBesideTheArenas) {
  DeviceReadings readings(100);
  readings.arenas_allocated(1102);
  EXPECT_EQ(readings.arenas(), 1002);
  EXPECT_EQ(readings.outside(), 100);
  readings.add(1152);
  EXPECT_EQ(readings.outside(), 150);
  readings.add(1112);
  EXPECT_EQ(readings.outside(), 110) << "the last reading";
  EXPECT_EQ(readings.peak(), 1152) << "the largest";
  EXPECT_EQ(readings.opened(), 100);
}

TEST(HeldMemory, OfADeviceIsWhatItsDriverCounts) {
  CountedDevice device;
  device.counted.in_use = 100 * mib;
  HeldMemory held(session(), device);
  const program::Program program = program_with(40 * mib, 8 * mib);
  const engine::JobMemory memory({&program}, memory::Arena::Guards::off, device.memory());
  device.counted.in_use = 142 * mib;
  held.arenas_allocated(session());
  EXPECT_EQ(HeldMemory::planned(device, memory), 40 * mib) << "the device's alone";
  EXPECT_EQ(held.arenas(), 42 * mib);
  device.counted.in_use = 162 * mib;
  EXPECT_EQ(held.outside(memory), 100 * mib) << "nobody looked";
  held.look();
  device.counted.in_use = 150 * mib;
  held.look();
  EXPECT_EQ(held.outside(memory), 108 * mib);
  EXPECT_EQ(held.peak(), 162 * mib);
  EXPECT_TRUE(contains(held.outside_text(), "100.00 MiB when the GPU was opened")) << held.outside_text();
  EXPECT_TRUE(contains(held.outside_text(), "8.00 MiB since")) << held.outside_text();
  const std::string text = held.peak_text(memory);
  EXPECT_TRUE(contains(text, "took 42.00 MiB of the GPU's memory for 40.00 MiB planned")) << text;
  EXPECT_EQ(contains(text, "2 ranks have even shares"), session().ranks_on_node() == 2) << text;
}

TEST(HeldMemory, OfACpuRankIsTheProcess) {
  const auto device = runtime::make_host_device();
  HeldMemory held(session(), *device);
  const program::Program program = program_with(64 * mib, 64 * mib);
  const engine::JobMemory memory({&program});
  held.arenas_allocated(session());
  held.look();
  EXPECT_EQ(HeldMemory::planned(*device, memory), 128 * mib);
  EXPECT_FALSE(held.arenas());
  EXPECT_GT(held.outside(memory), 0);
  EXPECT_EQ(held.peak(), runtime::peak_resident_bytes());
  EXPECT_EQ(held.peak_text(memory), "");
}

}  // namespace
}  // namespace ztrain::job::held_memory_test
