#include "job/product_algorithms.hpp"

#include "base/error.hpp"
#include "kernels/gemm/gemm_library.hpp"
#include "runtime/device/device.hpp"

namespace ztrain::job {
namespace {

std::string file_of(const config::Device& options) {
  return options.algorithms.empty() ? kernels::default_algorithms_file() : options.algorithms;
}

kernels::Bf16Products on_cpus(const runtime::Session& session, const config::Device& options) {
  using enum kernels::Bf16Products;
  if (options.bf16_products == "fp32") return widened;
  if (options.bf16_products == "native") {
    session.agree("looking for bf16 instructions", [&] { require_bf16_products(options); });
    return native;
  }
  const bool faster = kernels::usual_bf16_products() == native;
  return session.from_rank_0(faster ? "native" : "fp32") == "native" ? native : widened;
}

}  // namespace

void require_bf16_products(const config::Device& options) {
  REQUIRE(options.bf16_products != "native" || runtime::built_for_gpus() || kernels::multiplies_bf16(),
          "device.bf16_products = \"native\": this processor has no AVX512-BF16 and no AMX, or "
          "ONEDNN_MAX_CPU_ISA forbids them; \"auto\" and \"fp32\" work everywhere");
}

void open_product_algorithms(const runtime::Session& session, const config::Device& options,
                             kernels::Exec& exec) {
  kernels::GemmLibrary& library = kernels::gemm_library(exec);
  const auto home = kernels::algorithm_home();
  if (!home) {
    library.bf16 = on_cpus(session, options);
    return;
  }
  library.tf32 = options.tf32;
  library.tune = session.rank() == 0;
  library.algorithms = std::make_shared<kernels::AlgorithmTable>(*home);
  library.algorithms->merge(
      session.from_rank_0(session.rank() == 0 ? kernels::read_algorithms(file_of(options)) : ""));
}

std::string chosen_bf16_products(kernels::Exec& exec) {
  const auto chosen = kernels::gemm_library(exec).bf16;
  if (!chosen) return "";
  return *chosen == kernels::Bf16Products::native ? "native" : "fp32";
}

std::string share_product_algorithms(const runtime::Session& session, const config::Device& options,
                                     kernels::Exec& exec) {
  kernels::GemmLibrary& library = kernels::gemm_library(exec);
  if (!library.algorithms) return "";
  library.algorithms->merge(session.from_rank_0(session.rank() == 0 ? library.algorithms->to_text() : ""));
  library.tune = false;
  if (session.rank() != 0) return "";
  const std::string file = file_of(options);
  if (file.empty()) return "no home folder to keep the products' algorithms in: set device.algorithms";
  try {
    kernels::save_algorithms(file, *library.algorithms);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace ztrain::job
