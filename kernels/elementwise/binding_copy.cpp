// Copies. Those between tiers: of the device, by its queue without the host's help; of NVMe, by requests that
// the host starts and waits for, as it does with messages.

#include "engine/dispatch.hpp"
#include "engine/queues.hpp"
#include "kernels/communication/record.hpp"
#include "kernels/elementwise/copies.hpp"
#include "kernels/elementwise/record.hpp"

namespace ztrain::engine {
namespace {

using program::Tensor;
using program::TensorId;
using program::Tier;

/// Between the device and staging memory, as work of the device's queue.
class DeviceCopy final : public runtime::Collective {
 public:
  struct Range {
    std::byte *to, *from;
    std::int64_t bytes;
    bool in;  ///< from the host
  };
  DeviceCopy(runtime::Device& device, runtime::Queue queue, Range range)
      : device_(device), queue_(queue), range_(range) {}

  void start() override {
    if (range_.in)
      device_.copy_in(queue_, range_.to, range_.from, range_.bytes);
    else
      device_.copy_out(queue_, range_.to, range_.from, range_.bytes);
  }
  bool on_device() const override { return true; }
  bool test() override { return true; }
  void wait() override {}

 private:
  runtime::Device& device_;
  runtime::Queue queue_;
  Range range_;
};

/// Whole pages, between the host and a store.
class StoreTransfer final : public runtime::Collective {
 public:
  explicit StoreTransfer(std::unique_ptr<memory::NvmeStore::Transfer> transfer)
      : transfer_(std::move(transfer)) {}
  void start() override { transfer_->start(); }
  bool test() override { return transfer_->test(); }
  void wait() override { transfer_->wait(); }

 private:
  std::unique_ptr<memory::NvmeStore::Transfer> transfer_;
};

/// Any bytes, at once: those around them in their first and last page stay.
class StoreCopy final : public runtime::Collective {
 public:
  StoreCopy(memory::NvmeMemory& nvme, std::byte* kept, std::byte* host, std::int64_t bytes, bool writes)
      : nvme_(nvme), kept_(kept), host_(host), bytes_(bytes), writes_(writes) {}
  void start() override {
    if (writes_)
      nvme_.write(kept_, host_, bytes_);
    else
      nvme_.read(host_, kept_, bytes_);
  }
  bool shares_memory() const override { return true; }  // the pages that it has in common with neighbours
  bool test() override { return true; }
  void wait() override {}

 private:
  memory::NvmeMemory& nvme_;
  std::byte *kept_, *host_;
  std::int64_t bytes_;
  bool writes_;
};

Tier tier_of(const Binding& b, TensorId id) {
  return b.program.tensor(b.program.storage(id)).tier;
}

/// Whether the tensor's own bytes end where these do.
bool is_at_end(const Binding& b, TensorId id) {
  const Tensor& part = b.program.tensor(id);
  return part.offset + part.bytes() == b.program.tensor(b.program.storage(id)).bytes();
}

/// Of a copy whose operands are in different tiers. Null: a kernel does it, since the host reaches both.
std::unique_ptr<runtime::Collective> make_tier_copy(const Binding& b) {
  const TensorId x = b.op.inputs[Copy::x], y = b.op.outputs[Copy::y];
  const Tier from = tier_of(b, x), to = tier_of(b, y);
  auto* const source = b.data<std::byte>(x);
  auto* const target = b.data<std::byte>(y);
  const std::int64_t bytes = b.program.tensor(x).bytes();
  if (from == Tier::nvme || to == Tier::nvme) {
    const bool writes = to == Tier::nvme;
    std::byte* const kept = writes ? target : source;
    std::byte* const host = writes ? source : target;
    memory::NvmeMemory& nvme = *b.memory.nvme();
    if (auto transfer = nvme.transfer(writes, kept, host, bytes, is_at_end(b, writes ? y : x)))
      return std::make_unique<StoreTransfer>(std::move(transfer));
    return std::make_unique<StoreCopy>(nvme, kept, host, bytes, writes);
  }
  if (from == to || !b.device.asynchronous()) return nullptr;
  return std::make_unique<DeviceCopy>(b.device, queue_of(b.op.stream),
                                      DeviceCopy::Range{target, source, bytes, from == Tier::host});
}

Bound bind_copy(const Binding& b) {
  if (auto copy = make_tier_copy(b)) return {nullptr, std::move(copy)};
  return launch(b, kernels::copy, b.input<std::byte>(Copy::x), b.output<std::byte>(Copy::y),
                b.in(Copy::x).bytes());
}

}  // namespace

std::span<const KernelRow> elementwise_copy_kernels() {
  static constexpr KernelRow rows[] = {
      {Copy::op, bind_copy},
      {program::OwnRows::op, bind_copy},
  };
  return rows;
}

}  // namespace ztrain::engine
