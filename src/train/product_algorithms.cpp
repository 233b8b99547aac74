#include "train/product_algorithms.hpp"

#include "base/error.hpp"
#include "kernels/gemm_library.hpp"

namespace ztrain::train {
namespace {

std::string file_of(const config::Device& options) {
  return options.algorithms.empty() ? kernels::default_algorithms_file() : options.algorithms;
}

}  // namespace

void open_product_algorithms(const runtime::Session& session, const config::Device& options,
                             kernels::Exec& exec) {
  const auto home = kernels::algorithm_home();
  if (!home) return;
  kernels::GemmLibrary& library = kernels::gemm_library(exec);
  library.tf32 = options.tf32;
  library.tune = session.rank() == 0;
  library.algorithms = std::make_shared<kernels::AlgorithmTable>(*home);
  library.algorithms->merge(
      session.from_rank_0(session.rank() == 0 ? kernels::read_algorithms(file_of(options)) : ""));
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

}  // namespace ztrain::train
