#include "kernels/launch/exec.hpp"

#include <fmt/format.h>

#include <exception>
#include <string_view>

#include "base/error.hpp"
#include "kernels/launch/exec_kokkos.hpp"

namespace ztrain::kernels {
namespace {

/// Kokkos's execution spaces of GPUs are made from a stream; the others have none.
template <class Space>
concept OnStream = requires(Space space) {
  space.cuda_stream();
};

template <class Space>
Space space_on(void* stream) {
  if constexpr (OnStream<Space>)
    return stream ? Space(static_cast<decltype(Space().cuda_stream())>(stream)) : Space();
  else
    return Space();
}

template <class Space>
void* stream_of(const Space& space) {
  if constexpr (OnStream<Space>)
    return space.cuda_stream();
  else
    return nullptr;
}

}  // namespace

void* native_stream(const Exec& exec) {
  return stream_of(exec.space);
}

std::shared_ptr<GemmLibrary>& gemm_library_slot(Exec& exec) {
  return exec.gemm;
}

std::shared_ptr<AttentionPlans>& attention_plans(Exec& exec) {
  return exec.attention;
}

void initialize_backend() {
  if (Kokkos::is_initialized()) return;
  use_one_library_thread();
  try {
    Kokkos::initialize();
  } catch (const std::exception& e) {
    // It takes KOKKOS_ variables of the environment, and its texts end with where they were raised.
    const std::string_view text = e.what();
    throw Error(fmt::format("Kokkos does not start: {}", text.substr(0, text.find('\n'))));
  }
}

void finalize_backend() {
  if (Kokkos::is_initialized()) Kokkos::finalize();
}

void ExecDeleter::operator()(Exec* exec) const {
  // Kokkos waits for the stream in its destructor, and ends the process without a word if the GPU has failed.
  // While an error unwinds, the instance is left to the end of the process, so that the error is printed.
  if constexpr (OnStream<Kokkos::DefaultExecutionSpace>)
    if (std::uncaught_exceptions() > 0) return;
  std::default_delete<Exec>{}(exec);
}

ExecHandle make_exec(void* stream) {
  REQUIRE(Kokkos::is_initialized(), "the kernel backend is not initialised: call initialize_backend() first");
  return ExecHandle(std::make_unique<Exec>(Exec{space_on<Kokkos::DefaultExecutionSpace>(stream)}).release());
}

}  // namespace ztrain::kernels
