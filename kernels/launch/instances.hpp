#pragma once
// Explicit instances of kernels' templates, for the types that there are kernels of. Included by kernel
// sources only.

#include "base/dtype.hpp"

/// Of function templates, each of which has been declared and is the only one of its name.
#define ZTRAIN_INSTANCE(kernel, ...) template decltype(kernel<__VA_ARGS__>) kernel<__VA_ARGS__>;
#define ZTRAIN_CLASS_INSTANCE(name, ...) template class name<__VA_ARGS__>;

/// For every type of activations.
#define ZTRAIN_FOR_FLOATS(instance, name) \
  instance(name, float) instance(name, bf16) instance(name, f16) instance(name, double)

/// For every legal pair of a type of activations and one of a parameter's gradient.
#define ZTRAIN_FOR_GRADIENTS(instance, name)                                          \
  instance(name, float, float) instance(name, bf16, float) instance(name, bf16, bf16) \
      instance(name, f16, float) instance(name, f16, f16) instance(name, double, double)

#define ZTRAIN_INSTANCES(kernel) ZTRAIN_FOR_FLOATS(ZTRAIN_INSTANCE, kernel)
#define ZTRAIN_GRADIENT_INSTANCES(kernel) ZTRAIN_FOR_GRADIENTS(ZTRAIN_INSTANCE, kernel)
