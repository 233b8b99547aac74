#pragma once
// Kernels and collectives for Programs of any op types: what an op writes is a function of what it reads, and
// what it has read is written down.

#include <cstring>
#include <memory>
#include <vector>

#include "base/philox.hpp"
#include "engine/executor.hpp"
#include "program/ir/order.hpp"

namespace ztrain::test {

/// How the ops of communication streams are carried out.
enum class Carrier { kernel, device, host };

/// A range of the device's memory.
struct Range {
  std::byte* data;
  std::int64_t count;
};

class FakeOps {
 public:
  FakeOps(runtime::Device& device, Carrier carrier) : device_(device), carrier_(carrier) {}

  /// By op, what it has read last.
  std::vector<std::uint64_t> seen;
  /// The device's collectives that were bound, and how often they were started or replayed in a graph.
  int collectives = 0, carried = 0;

  engine::Bound bind(const engine::Binding& b) {
    const auto id = static_cast<std::size_t>(&b.op - b.program.ops.data());
    seen.resize(b.program.ops.size());
    if (b.op.type == "release") return {[] {}, nullptr};
    const auto inputs = ranges(b, b.op.inputs), outputs = ranges(b, b.op.outputs);
    std::function<void()> work = [this, id, inputs, outputs] {
      seen[id] = digest(inputs);
      for (const Range& out : outputs) write(out.data, out.count, seen[id] + id);
    };
    const bool communicates = b.op.stream != program::Stream::compute;
    if (!communicates || carrier_ == Carrier::kernel) return {work, nullptr};
    const runtime::Queue queue = engine::queue_of(b.op.stream);
    if (carrier_ == Carrier::device) {
      ++collectives;
      return {nullptr, std::make_unique<OnDevice>(*this, queue, std::move(work))};
    }
    return {nullptr, std::make_unique<ByHost>(*this, queue, id, inputs, outputs)};
  }

 private:
  static std::vector<Range> ranges(const engine::Binding& b, const std::vector<program::TensorId>& ids) {
    std::vector<Range> all;
    for (const program::TensorId id : ids)
      all.push_back({b.memory.address(b.program, id), b.program.tensor(id).bytes()});
    return all;
  }
  static std::uint64_t mix(std::uint64_t state, std::uint64_t value) {
    return philox(state, 1, value)[0] | std::uint64_t{philox(state, 2, value)[1]} << 32;
  }
  static std::uint64_t digest(const std::vector<Range>& ranges) {
    std::uint64_t state = 7;
    for (const Range& range : ranges)
      for (std::int64_t i = 0; i + 4 <= range.count; i += 4) {
        std::uint32_t word = 0;
        std::memcpy(&word, range.data + i, sizeof word);
        state = state * 6364136223846793005u + word + 1442695040888963407u;
      }
    return mix(state, 3);
  }
  static void write(std::byte* to, std::int64_t count, std::uint64_t from) {
    for (std::int64_t i = 0; i + 4 <= count; i += 4) {
      const auto word = static_cast<std::uint32_t>(from + static_cast<std::uint64_t>(i) * 2654435761u);
      std::memcpy(to + i, &word, sizeof word);
    }
  }

  class OnDevice final : public runtime::Collective {
   public:
    OnDevice(FakeOps& ops, runtime::Queue queue, std::function<void()> work)
        : ops_(ops), queue_(queue), work_(std::move(work)) {}
    bool on_device() const override { return true; }
    void start() override {
      ++ops_.carried;
      ops_.device_.submit(queue_, work_);
    }
    void replayed() override { ++ops_.carried; }
    bool test() override { return true; }
    void wait() override {}

   private:
    FakeOps& ops_;
    runtime::Queue queue_;
    std::function<void()> work_;
  };

  /// Copies its operands to the host, works there, and copies the results back.
  class ByHost final : public runtime::Collective {
   public:
    ByHost(FakeOps& ops, runtime::Queue queue, std::size_t id, std::vector<Range> inputs,
           std::vector<Range> outputs)
        : ops_(ops),
          queue_(queue),
          id_(id),
          inputs_(std::move(inputs)),
          outputs_(std::move(outputs)),
          copied_(ops.device_.make_event()) {
      for (const auto* ranges : {&inputs_, &outputs_})
        for (const Range& range : *ranges) staging_.emplace_back(static_cast<std::size_t>(range.count));
    }
    void start() override {
      for (std::size_t i = 0; i < inputs_.size(); ++i)
        ops_.device_.copy_out(queue_, staging_[i].data(), inputs_[i].data, inputs_[i].count);
      ops_.device_.record(copied_, queue_);
      phase_ = 1;
    }
    bool test() override {
      if (phase_ > 0 && ops_.device_.done(copied_)) next();
      return phase_ == 0;
    }
    void wait() override {
      while (phase_ > 0) {
        ops_.device_.synchronize(copied_);
        next();
      }
    }

   private:
    void next() {
      if (phase_++ == 2) {
        phase_ = 0;
        return;
      }
      std::vector<Range> copies;
      for (std::size_t i = 0; i < inputs_.size(); ++i)
        copies.push_back({staging_[i].data(), inputs_[i].count});
      ops_.seen[id_] = digest(copies);
      for (std::size_t i = 0; i < outputs_.size(); ++i) {
        std::vector<std::byte>& out = staging_[inputs_.size() + i];
        write(out.data(), outputs_[i].count, ops_.seen[id_] + id_);
        ops_.device_.copy_in(queue_, outputs_[i].data, out.data(), outputs_[i].count);
      }
      ops_.device_.record(copied_, queue_);
    }
    FakeOps& ops_;
    runtime::Queue queue_;
    std::size_t id_;
    std::vector<Range> inputs_, outputs_;
    std::vector<std::vector<std::byte>> staging_;
    runtime::Event copied_;
    int phase_ = 0;
  };

  runtime::Device& device_;
  Carrier carrier_;
};

}  // namespace ztrain::test
