#pragma once
// Kernels of rows that go to other ranks' experts and come back (record.hpp). route_elements of
// kernel_interface/kernel_workspace.hpp says what routes hold.

#include <cstdint>

#include "kernel_interface/view.hpp"
#include "kernels/launch/exec.hpp"

namespace ztrain::kernels {

struct Routes {
  const std::int32_t* data = nullptr;
  std::int64_t members = 0, experts = 0;  ///< members of the group, and experts of the rank
};

/// Makes what member `index` needs to know from gathered [M, E + 1], the offsets of each member's rows. Slots
/// have `slot` rows. RouteRows says what overflow is. Throws Error if sizes do not agree.
void make_routes(Exec& exec, Matrix<const std::int32_t> gathered, std::int64_t index, std::int64_t slot,
                 Vector<std::int32_t> routes, Vector<std::int32_t> own_offsets, double* overflow);

// These kernels copy between slots [M slot, d] and rows [R, d]. Rows that the routes do not name are not
// written, but slots_to_rows writes 0 to them.
template <class T>
void rows_to_slots(Exec& exec, Matrix<const T> rows, Routes routes, Matrix<T> slots);
template <class T>
void slots_to_rows(Exec& exec, Matrix<const T> slots, Routes routes, Matrix<T> rows);
template <class T>
void slots_to_experts(Exec& exec, Matrix<const T> slots, Routes routes, Matrix<T> rows);
template <class T>
void experts_to_slots(Exec& exec, Matrix<const T> rows, Routes routes, Matrix<T> slots);

}  // namespace ztrain::kernels
