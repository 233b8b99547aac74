#pragma once
// A file descriptor that is closed when it goes out of scope.

#include <unistd.h>

#include <utility>

namespace ztrain {

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }

  operator int() const { return number_; }
  /// It is the caller's to close from here on.
  int release() { return std::exchange(number_, -1); }
  /// What close(2) gives: some file systems report a failed write only here.
  int close() { return ::close(release()); }

 private:
  int number_;
};

}  // namespace ztrain
