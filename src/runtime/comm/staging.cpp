#include "runtime/comm/staging.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace ztrain::runtime {

Staging::Staging(Device& device, Queue queue) : device_(device), queue_(queue), end_(device, queue) {}

Staging::~Staging() {
  if (data_ != nullptr) device_.staging().release(data_, allocated_);
}

void Staging::reserve(std::int64_t bytes) {
  reserved_ = std::max(reserved_, bytes);
}

std::byte* Staging::acquire() {
  REQUIRE(!in_use_, "two communications of queue {} are in flight at once, and its staging memory holds one",
          queue_);
  if (allocated_ < reserved_) {
    if (data_ != nullptr) device_.staging().release(data_, allocated_);
    data_ = nullptr;
    allocated_ = 0;
    data_ = device_.staging().allocate("staging of communications", reserved_);
    allocated_ = reserved_;
    ++generation_;
  }
  in_use_ = true;
  return data_;
}

}  // namespace ztrain::runtime
