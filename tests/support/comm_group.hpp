#pragma once
// A mesh of all ranks along one axis, on each kind of memory that communicators work on.

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/mesh_comms.hpp"
#include "runtime/device/device.hpp"
#include "tests/support/comm_values.hpp"
#include "tests/support/mpi_main.hpp"

namespace ztrain::test {

/// What moves the data: MPI on the host's memory; MPI through staging memory, on a device that runs work at
/// once, or on one that defers it and closes its memory to the host; NCCL; the late NCCL of tests, which sums
/// in rank order, and the same where it sums 16 bits too (NcclOptions::nccl_sums).
enum class Via { mpi, staged, deferred, nccl, late, late_sums };

inline std::string name_of(Via via) {
  return std::array{"Mpi", "Staged", "Deferred", "Nccl", "Late", "LateSums"}[static_cast<std::size_t>(via)];
}

/// A size of one makes the communicators of groups of one, so the same tests cover them.
struct CommGroup {
  /// Any but those of NCCL.
  explicit CommGroup(Via how, std::int64_t cut = runtime::largest_message)
      : CommGroup(how, device_for(how), [&](runtime::Device& on) { return backend(how, on, cut); }) {}
  template <class MakeBackend>
  CommGroup(Via how, std::unique_ptr<runtime::Device> on, const MakeBackend& make_backend)
      : via(how),
        device(std::move(on)),
        mesh(session(), shape(), make_backend(*device)),
        comm(mesh.over(Axis::shard)),
        rank(comm.rank()),
        size(comm.size()),
        sums(sum_group(mesh.shape(), Axis::shard)) {}
  static std::unique_ptr<runtime::Device> device_for(Via how) {
    if (how != Via::deferred) return runtime::make_host_device();
    return runtime::make_deferred_device(17 + static_cast<std::uint64_t>(session().rank()));
  }
  static MeshShape shape() {
    MeshShape s;
    s[Axis::shard] = session().size();
    s.per_node = 3;  // of six ranks, 16-bit sums are by node
    return s;
  }
  static std::unique_ptr<runtime::CommunicatorBackend> backend(Via how, runtime::Device& on,
                                                               std::int64_t cut) {
    if (how == Via::mpi) return std::make_unique<runtime::MpiBackend>(cut);
    return std::make_unique<runtime::StagedBackend>(on, "", cut);
  }

  Via via;
  std::unique_ptr<runtime::Device> device;
  runtime::Mesh mesh;
  runtime::Communicator& comm;
  int rank, size;
  SumGroup sums;
};

/// Elements in a device's memory.
template <class T>
class DeviceArray {
 public:
  DeviceArray(runtime::Device& device, const std::vector<T>& values)
      : memory_(device.memory()),
        count_(values.size()),
        bytes_(static_cast<std::int64_t>(count_ * sizeof(T))),
        data_(memory_.allocate("test array", bytes_ + 1)) {
    write(values);
  }
  DeviceArray(runtime::Device& device, std::int64_t count, T value)
      : DeviceArray(device, std::vector<T>(static_cast<std::size_t>(count), value)) {}
  ~DeviceArray() { memory_.release(data_, bytes_ + 1); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return reinterpret_cast<T*>(data_); }
  void write(const std::vector<T>& values) {
    if (bytes_ > 0) memory_.write(data_, values.data(), bytes_);
  }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    if (bytes_ > 0) memory_.read(values.data(), data_, bytes_);
    return values;
  }

 private:
  memory::Provider& memory_;
  std::size_t count_;
  std::int64_t bytes_;
  std::byte* data_;
};

/// What a group's sum of element i is. In 16 bits NCCL rounds after every addition.
template <class In>
acc_t<In> group_sum(const CommGroup& g, std::int64_t i) {
  if (g.via != Via::late_sums || sizeof(In) != 2) return serial_sum<In>(g.sums, i);
  In sum = element<In>(0, i);
  for (int r = 1; r < g.size; ++r)
    sum = static_cast<In>(static_cast<acc_t<In>>(sum) + static_cast<acc_t<In>>(element<In>(r, i)));
  return static_cast<acc_t<In>>(sum);
}

/// Start to end, as the host sees it.
inline void run(runtime::Collective& collective) {
  collective.start();
  collective.wait();
  EXPECT_TRUE(collective.test());
}
inline void run(const std::unique_ptr<runtime::Collective>& collective) {
  run(*collective);
}

}  // namespace ztrain::test
