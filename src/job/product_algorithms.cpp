#include "job/product_algorithms.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "checkpoint/rank_group.hpp"
#include "kernels/gemm/gemm_library.hpp"
#include "runtime/device/device.hpp"

namespace ztrain::job {
namespace {

std::string file_of(const config::Device& options) {
  return options.algorithms.empty() ? kernels::default_algorithms_file() : options.algorithms;
}

/// What the deck asks for; "auto": whether rank 0 takes `word`, which may suit its processor.
bool takes(const runtime::Session& session, const std::string& asked, const std::string& word, bool suits) {
  return (asked == "auto" ? session.from_rank_0(suits ? word : "") : asked) == word;
}

/// What another job has measured meanwhile goes into the table as well: a run that resumes reads it from the
/// file. Gives a warning, or "".
std::string keep(kernels::AlgorithmTable& table, const std::string& file) {
  if (file.empty()) return "no home folder to keep the products' algorithms in: set device.algorithms";
  try {
    kernels::save_algorithms(file, table);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

bool measures(const Coordinate& rank) {
  return rank[Axis::replicate] == 0 && rank[Axis::shard] == 0 && rank[Axis::expert] == 0 &&
         rank[Axis::ring] == 0 && rank[Axis::context] == 0;
}

void require_products(const config::Device& options) {
  if (runtime::built_for_gpus()) return;
  REQUIRE(options.bf16_products != "native" || kernels::multiplies_bf16(),
          "device.bf16_products = \"native\": this processor has no AVX512-BF16 and no AMX, or "
          "ONEDNN_MAX_CPU_ISA forbids them; \"auto\" and \"fp32\" work everywhere");
  REQUIRE(
      options.fp32_products != "bf16x6" || kernels::splits_fp32(),
      "device.fp32_products = \"bf16x6\": this processor or this build has no AMX, or ONEDNN_MAX_CPU_ISA or "
      "the operating system forbids it; \"auto\" and \"native\" work everywhere");
}

void open_product_algorithms(const runtime::Session& session, const MeshShape& mesh,
                             const config::Device& options, int multiprocessors, kernels::Exec& exec) {
  kernels::GemmLibrary& library = kernels::gemm_library(exec);
  const auto home = kernels::algorithm_home();
  if (!home) {
    session.agree("looking for instructions of products", [&] { require_products(options); });
    using kernels::Bf16Products, kernels::Fp32Products;
    const bool native = takes(session, options.bf16_products, "native",
                              kernels::usual_bf16_products() == Bf16Products::native);
    const bool split = takes(session, options.fp32_products, "bf16x6",
                             kernels::usual_fp32_products() == Fp32Products::split);
    library.bf16 = native ? Bf16Products::native : Bf16Products::widened;
    library.fp32 = split ? Fp32Products::split : Fp32Products::native;
    return;
  }
  library.tf32 = options.tf32;
  library.multiprocessors = multiprocessors;
  library.tune = measures(Coordinate(mesh, session.rank()));
  library.algorithms = std::make_shared<kernels::AlgorithmTable>(*home);
  library.algorithms->merge(
      session.from_rank_0(session.rank() == 0 ? kernels::read_algorithms(file_of(options)) : ""));
}

ProductWays ways_of(const kernels::GemmLibrary& library, DType parameters) {
  if (!library.bf16 || parameters == DType::f64) return {};
  const bool native = *library.bf16 == kernels::Bf16Products::native;
  const bool split = library.fp32 == kernels::Fp32Products::split;
  ProductWays ways;
  if (parameters == DType::bf16) ways.bf16 = native ? "native" : "fp32";
  if (parameters != DType::bf16 || !native) ways.fp32 = split ? "bf16x6" : "native";
  return ways;
}

ProductWays chosen_products(kernels::Exec& exec, DType parameters) {
  return ways_of(kernels::gemm_library(exec), parameters);
}

std::string processor_of(const runtime::Device& device, DType parameters) {
  return device.asynchronous() ? device.name() : kernels::instructions_of(parameters);
}

std::string other_processors(const runtime::Session& session, const std::string& processor) {
  std::array<char, 128> mine{};
  processor.copy(mine.data(), mine.size() - 1);
  const auto all = runtime::of_all(session, mine);
  const auto other = std::ranges::find_if(all, [&](const auto& rank) { return rank != all.front(); });
  if (other == all.end()) return "";
  return fmt::format(
      "rank {} computes by \"{}\", rank 0 by \"{}\": which of them computes what shows in the last bits of "
      "losses",
      other - all.begin(), other->data(), all.front().data());
}

std::string share_product_algorithms(const runtime::Session& session, const config::Device& options,
                                     kernels::Exec& exec) {
  kernels::GemmLibrary& library = kernels::gemm_library(exec);
  if (!library.algorithms) return "";
  kernels::AlgorithmTable all(library.algorithms->home());
  const std::string own = library.tune ? library.algorithms->to_text() : "";
  for (const std::string& text : checkpoint::Group::world().gather_text(own)) all.merge(text);
  const std::string warning = session.rank() == 0 ? keep(all, file_of(options)) : "";
  const std::string shared = session.from_rank_0(session.rank() == 0 ? all.to_text() : "");
  *library.algorithms = kernels::AlgorithmTable(library.algorithms->home());
  library.algorithms->merge(shared);
  library.tune = false;
  return warning;
}

}  // namespace ztrain::job
