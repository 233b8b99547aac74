#include <cstring>

#include "base/error.hpp"
#include "runtime/device/device.hpp"

namespace ztrain::runtime {
namespace {

class HostDevice final : public Device {
 public:
  const std::string& name() const override { return name_; }
  const std::string& identity() const override { return identity_; }
  bool asynchronous() const override { return false; }
  memory::Provider& memory() override { return memory::host_memory(); }
  memory::Provider& staging() override { return memory::host_memory(); }
  void* native_stream(Queue) const override { return nullptr; }

  void submit(Queue, const std::function<void()>& work) override { work(); }
  void run_on_host(Queue, const std::function<void()>& work) override { work(); }
  Event make_event(bool) override { return 0; }
  void record(Event, Queue) override {}
  void wait(Queue, Event) override {}
  void copy_in(Queue, void* to, const void* host, std::int64_t bytes) override {
    std::memcpy(to, host, static_cast<std::size_t>(bytes));
  }
  void copy_out(Queue, void* host, const void* from, std::int64_t bytes) override {
    std::memcpy(host, from, static_cast<std::size_t>(bytes));
  }

  bool done(Event) override { return true; }
  void synchronize(Event) override {}
  void finish() override {}
  std::optional<double> seconds(Event, Event) override { return std::nullopt; }

  bool captures() const override { return false; }
  void begin_capture(Queue) override { fail("the CPU captures no work"); }
  Graph end_capture(Queue) override { fail("the CPU captures no work"); }
  void launch(Graph, Queue) override { fail("the CPU captures no work"); }

 private:
  std::string name_ = "CPU", identity_;
};

}  // namespace

std::unique_ptr<Device> make_host_device() {
  return std::make_unique<HostDevice>();
}

}  // namespace ztrain::runtime
