#pragma once
// The HDF5 library as packaged is not thread-safe. Whoever calls it holds this lock, which is one for the
// process.

#include <mutex>

namespace ztrain {

inline std::recursive_mutex& hdf5_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

}  // namespace ztrain
