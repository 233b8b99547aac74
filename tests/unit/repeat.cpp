#include <fmt/format.h>
#include <gtest/gtest.h>
#include "program/passes.hpp"
#include "program/repeat.hpp"
#include "tests/support/job_settings.hpp"
#include "tests/support/pairwise.hpp"
#include "tests/support/small_job.hpp"
namespace ztrain::program {
namespace {
using test::small_model;
using test::spec_on;
TEST(Repeat, Explore) {
  auto all = test::knobs();
  all.pop_back();
  std::vector<int> levels;
  for (const auto& sets : all) levels.push_back(static_cast<int>(sets.size()));
  int folded = 0, n = 0, extent = 0, live=0, opsd=0;
  for (const bool tied : {false, true})
    for (const auto& row : test::Pairwise(levels).rows()) {
      JobSpec spec = spec_on(1, 1, strategies().front());
      std::string name;
      for (std::size_t k = 0; k < row.size(); ++k) {
        all[k][static_cast<std::size_t>(row[k])](spec);
        name += fmt::format(" {}", row[k]);
      }
      spec.micro_batches = 9;
      const Job a = compile(small_model(3, tied), spec, 0);
      spec.every_micro_batch = true;
      const Job b = compile(small_model(3, tied), spec, 0);
      ++n;
      folded += a.train.repeat.times > 1;
      if (a.train.repeat.times == 1) fmt::print("unfolded {}\n", name);
      const bool e = a.train.plan[0].transient_bytes != b.train.plan[0].transient_bytes;
      extent += e;
      if (e) fmt::print("extent {} {} live {} {}: {}\n", a.train.plan[0].transient_bytes, b.train.plan[0].transient_bytes, a.train.plan[0].live_bytes, b.train.plan[0].live_bytes, name);
      live += a.train.plan[0].live_bytes != b.train.plan[0].live_bytes;
      opsd += a.train.issues() != std::ssize(b.train.ops);
      verify_rank(unrolled(a.train));
    }
  fmt::print("{} jobs {} folded {} extents differ {} live differ {} ops differ\n", n, folded, extent, live, opsd);
}
}  // namespace
}  // namespace ztrain::program
