#pragma once
// A device that works until it is told to stop: work that was given to it after that never ends.

#include <chrono>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "runtime/device.hpp"

namespace ztrain::test {

class StuckDevice final : public runtime::Device {
 public:
  explicit StuckDevice(std::unique_ptr<runtime::Device> inner) : inner_(std::move(inner)) {}

  /// Of the events that are recorded from now on only the first few are ever done. Whoever asks for others
  /// for so long is told that it is enough: Error.
  void stop_after(int events, std::chrono::milliseconds patience) {
    left_ = events;
    patience_ = patience;
    stuck_ = true;
  }

  const std::string& name() const override { return inner_->name(); }
  const std::string& identity() const override { return inner_->identity(); }
  bool asynchronous() const override { return true; }
  memory::Provider& memory() override { return inner_->memory(); }
  memory::Provider& staging() override { return inner_->staging(); }
  void* native_stream(runtime::Queue queue) const override { return inner_->native_stream(queue); }
  void submit(runtime::Queue queue, const std::function<void()>& work) override {
    inner_->submit(queue, work);
  }
  runtime::Event make_event(bool timed) override {
    ends_.push_back(true);
    return inner_->make_event(timed);
  }
  void record(runtime::Event event, runtime::Queue queue) override {
    inner_->record(event, queue);
    ends_[static_cast<std::size_t>(event)] = !stuck_ || left_-- > 0;
  }
  void wait(runtime::Queue queue, runtime::Event event) override { inner_->wait(queue, event); }
  void copy_in(runtime::Queue queue, void* to, const void* host, std::int64_t bytes) override {
    inner_->copy_in(queue, to, host, bytes);
  }
  void copy_out(runtime::Queue queue, void* host, const void* from, std::int64_t bytes) override {
    inner_->copy_out(queue, host, from, bytes);
  }
  bool done(runtime::Event event) override {
    if (ends_[static_cast<std::size_t>(event)]) {
      inner_->synchronize(event);
      return true;
    }
    const auto now = std::chrono::steady_clock::now();
    if (first_ == std::chrono::steady_clock::time_point{}) first_ = now;
    if (now - first_ > patience_) fail("the device is stuck");
    return false;
  }
  void synchronize(runtime::Event event) override { inner_->synchronize(event); }
  void finish() override { inner_->finish(); }
  std::optional<double> seconds(runtime::Event from, runtime::Event to) override {
    return inner_->seconds(from, to);
  }
  bool captures() const override { return inner_->captures(); }
  void begin_capture(runtime::Queue queue) override { inner_->begin_capture(queue); }
  runtime::Graph end_capture(runtime::Queue queue) override { return inner_->end_capture(queue); }
  void launch(runtime::Graph graph, runtime::Queue queue) override { inner_->launch(graph, queue); }
  void destroy(runtime::Graph graph) noexcept override { inner_->destroy(graph); }

 private:
  std::unique_ptr<runtime::Device> inner_;
  std::vector<bool> ends_;  ///< by event: as it was last recorded
  bool stuck_ = false;
  int left_ = 0;
  std::chrono::milliseconds patience_{0};
  std::chrono::steady_clock::time_point first_;
};

}  // namespace ztrain::test
