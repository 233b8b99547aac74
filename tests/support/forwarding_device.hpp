#pragma once
// A device that hands everything to another one: what tests that change a part of it begin with.

#include <memory>

#include "runtime/device/device.hpp"

namespace ztrain::test {

class ForwardingDevice : public runtime::Device {
 public:
  explicit ForwardingDevice(std::unique_ptr<runtime::Device> inner) : inner_(std::move(inner)) {}

  const std::string& name() const override { return inner_->name(); }
  const std::string& identity() const override { return inner_->identity(); }
  bool asynchronous() const override { return inner_->asynchronous(); }
  memory::Provider& memory() override { return inner_->memory(); }
  memory::Provider& staging() override { return inner_->staging(); }
  void* native_stream(runtime::Queue queue) const override { return inner_->native_stream(queue); }
  void submit(runtime::Queue queue, const std::function<void()>& work) override {
    inner_->submit(queue, work);
  }
  void run_on_host(runtime::Queue queue, const std::function<void()>& work) override {
    inner_->run_on_host(queue, work);
  }
  runtime::Event make_event(bool timed = false) override { return inner_->make_event(timed); }
  void record(runtime::Event event, runtime::Queue queue) override { inner_->record(event, queue); }
  void wait(runtime::Queue queue, runtime::Event event) override { inner_->wait(queue, event); }
  void copy_in(runtime::Queue queue, void* to, const void* host, std::int64_t bytes) override {
    inner_->copy_in(queue, to, host, bytes);
  }
  void copy_out(runtime::Queue queue, void* host, const void* from, std::int64_t bytes) override {
    inner_->copy_out(queue, host, from, bytes);
  }
  bool done(runtime::Event event) override { return inner_->done(event); }
  void synchronize(runtime::Event event) override { inner_->synchronize(event); }
  void forget_errors() override { inner_->forget_errors(); }
  void finish() override { inner_->finish(); }
  std::optional<double> seconds(runtime::Event from, runtime::Event to) override {
    return inner_->seconds(from, to);
  }
  bool captures() const override { return inner_->captures(); }
  void begin_capture(runtime::Queue queue) override { inner_->begin_capture(queue); }
  runtime::Graph end_capture(runtime::Queue queue) override { return inner_->end_capture(queue); }
  void launch(runtime::Graph graph, runtime::Queue queue) override { inner_->launch(graph, queue); }
  void destroy(runtime::Graph graph) noexcept override { inner_->destroy(graph); }

 protected:
  runtime::Device& inner() const { return *inner_; }

 private:
  std::unique_ptr<runtime::Device> inner_;
};

}  // namespace ztrain::test
