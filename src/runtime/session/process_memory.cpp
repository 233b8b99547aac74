#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "runtime/session/session.hpp"

namespace ztrain::runtime {
namespace {

/// Returns a line of /proc/self/status, such as "VmHWM:   1234 kB", in bytes.
std::int64_t status_bytes(const char* key) {
  char text[8192];
  const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t n = read(file, text, sizeof text - 1);
  close(file);
  if (n <= 0) return 0;
  text[n] = '\0';
  const char* line = std::strstr(text, key);
  return line == nullptr ? 0 : std::strtoll(line + std::strlen(key), nullptr, 10) * 1024;
}

}  // namespace

std::int64_t peak_resident_bytes() {
  return status_bytes("VmHWM:");
}
std::int64_t resident_bytes() {
  return status_bytes("VmRSS:");
}

}  // namespace ztrain::runtime
