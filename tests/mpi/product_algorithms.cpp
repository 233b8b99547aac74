// What the ranks of a job measured becomes one table: ranks with equal products sum in one order.

#include "job/product_algorithms.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "kernels/launch/exec.hpp"
#include "tests/support/mpi_main.hpp"

namespace ztrain::product_algorithms_test {
namespace {

using kernels::Algorithm;
using test::session;

Algorithm of_microseconds(double microseconds) {
  return {.bytes = {}, .microseconds = microseconds};
}

TEST(ProductAlgorithms, AreThoseOfTheLowestRankThatMeasured) {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "ztrain_shared_algorithms.json";
  if (session().rank() == 0) std::filesystem::remove(file);
  session().barrier();
  const kernels::AlgorithmHome home{"a GPU", 1, 2};
  kernels::initialize_backend();
  const kernels::ExecHandle exec = kernels::make_exec(nullptr);
  kernels::GemmLibrary& library = kernels::gemm_library(*exec);
  library.algorithms = std::make_shared<kernels::AlgorithmTable>(home);
  const int rank = session().rank(), last = session().size() - 1;
  library.tune = rank == 0 || rank == last;
  // Two have measured one product, and each one of its own; the others have proposals that nobody measured.
  library.algorithms->record("both", of_microseconds(10 + rank));
  library.algorithms->record("of " + std::to_string(rank), of_microseconds(20 + rank));
  config::Device options;
  options.algorithms = file.string();
  EXPECT_EQ(job::share_product_algorithms(session(), options, *exec), "");
  EXPECT_FALSE(library.tune);
  EXPECT_EQ(library.algorithms->size(), last == 0 ? 2u : 3u);
  const auto microseconds = [&](const std::string& key) {
    const auto found = library.algorithms->find(key);
    return found ? found->microseconds : 0;
  };
  EXPECT_EQ(microseconds("both"), 10);
  EXPECT_EQ(microseconds("of 0"), 20);
  EXPECT_EQ(microseconds("of " + std::to_string(last)), 20 + last);
  session().barrier();
  if (rank != 0) return;
  kernels::AlgorithmTable written(home);
  written.merge(kernels::read_algorithms(file.string()));
  EXPECT_EQ(written.to_text(), library.algorithms->to_text());
  std::filesystem::remove(file);
}

/// A resume would read it from the file: all ranks go on with it at once.
TEST(ProductAlgorithms, WhatAnotherJobHasMeasuredMeanwhileCounts) {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "ztrain_others_algorithms.json";
  const kernels::AlgorithmHome home{"a GPU", 1, 2};
  if (session().rank() == 0) {
    std::filesystem::remove(file);
    kernels::AlgorithmTable others(home);
    others.record("both", of_microseconds(5));
    kernels::save_algorithms(file.string(), others);
  }
  session().barrier();
  const kernels::ExecHandle exec = kernels::make_exec(nullptr);
  kernels::GemmLibrary& library = kernels::gemm_library(*exec);
  library.algorithms = std::make_shared<kernels::AlgorithmTable>(home);
  library.tune = session().rank() == 0;
  library.algorithms->record("both", of_microseconds(10));
  config::Device options;
  options.algorithms = file.string();
  EXPECT_EQ(job::share_product_algorithms(session(), options, *exec), "");
  const auto found = library.algorithms->find("both");
  EXPECT_EQ(found ? found->microseconds : 0, 5);
  session().barrier();
  if (session().rank() == 0) std::filesystem::remove(file);
}

TEST(ProductAlgorithms, OneRankOfEachPartOfAModelMeasures) {
  MeshShape mesh;
  for (const Axis axis :
       {Axis::pipeline, Axis::replicate, Axis::shard, Axis::ring, Axis::context, Axis::tensor})
    mesh[axis] = 2;
  std::map<std::pair<int, int>, int> measuring;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const Coordinate at(mesh, rank);
    measuring[{at[Axis::pipeline], at[Axis::tensor]}] += job::measures(at);
  }
  EXPECT_EQ(measuring.size(), 4u);
  for (const auto& [part, ranks] : measuring) EXPECT_EQ(ranks, 1) << part.first << " " << part.second;
}

TEST(Processors, AnyRankThatHasAnotherIsNamed) {
  EXPECT_EQ(job::other_processors(session(), "AVX2"), "");
  for (int other = 1; other < session().size(); ++other) {
    const std::string text = job::other_processors(session(), session().rank() == other ? "AVX-512" : "AVX2");
    EXPECT_TRUE(
        text.starts_with("rank " + std::to_string(other) + " computes by \"AVX-512\", rank 0 by \"AVX2\""))
        << text;
  }
}

}  // namespace
}  // namespace ztrain::product_algorithms_test
