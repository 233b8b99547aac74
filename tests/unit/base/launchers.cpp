// Tests that launchers are known by the environments that they give to rank 2 of 4 on two nodes. Documents
// and sources of the launchers publish these environments.
#include "base/launchers.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace ztrain::launchers_test {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

Environment of(Variables variables) {
  return [variables = std::move(variables)](std::string_view name) {
    const auto it = variables.find(name);
    return it == variables.end() ? std::nullopt : std::optional(it->second);
  };
}

const Variables slurm{{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"},
                      {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "2"},  {"SLURM_LOCALID", "0"},
                      {"SLURM_NODEID", "1"}},
    pals{{"PALS_APID", "7.0"},      {"PALS_APINFO", "/var/spool/apinfo"}, {"PALS_NODEID", "1"},
         {"PALS_RANKID", "2"},      {"PALS_SPOOL_DIR", "/var/spool"},     {"PMI_CONTROL_PORT", "20001"},
         {"PMI_SHARED_SECRET", "5"}},
    numbers_of_cray{{"PALS_LOCAL_RANKID", "0"}, {"PMI_JOBID", "7"}, {"PMI_LOCAL_RANK", "0"},
                    {"PMI_LOCAL_SIZE", "2"},    {"PMI_RANK", "2"},  {"PMI_SIZE", "4"},
                    {"PMI_UNIVERSE_SIZE", "4"}},
    pmix{{"PMIX_NAMESPACE", "slurm.pmix.7.0"},
         {"PMIX_RANK", "2"},
         {"PMIX_SERVER_URI41", "pmix;tcp4://10.0.0.1:9"}},
    open_mpi{
        {"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}},
    hydra{{"HYDI_CONTROL_FD", "7"}, {"PMI_FD", "6"},          {"PMI_RANK", "2"},
          {"PMI_SIZE", "4"},        {"MPI_LOCALNRANKS", "2"}, {"MPI_LOCALRANKID", "0"}};

Variables all(std::initializer_list<Variables> parts) {
  Variables whole;
  for (Variables part : parts) whole.merge(part);
  return whole;
}

struct Case {
  std::string name;
  Variables variables;
  WireUp wire_up;
  std::string rank = "2", size = "4", local_rank = "0";
};

const std::vector<Case> cases{
    {"mpirun of Open MPI 4",
     all({open_mpi, pmix, {{"OMPI_MCA_orte_local_daemon_uri", "1.0;tcp://10.0.0.1:9"}}}), WireUp::pmix},
    {"mpirun of Open MPI 5 (PRRTE)", all({open_mpi, pmix, {{"PRTE_LAUNCHED", "1"}}}), WireUp::pmix},
    {"prun of PRRTE", all({pmix, {{"PRTE_LAUNCHED", "1"}}}), WireUp::pmix, "2", "", ""},
    {"mpiexec of MPICH (Hydra)", hydra, WireUp::pmi},
    {"Flux",
     {{"FLUX_TASK_RANK", "2"},
      {"FLUX_JOB_SIZE", "4"},
      {"FLUX_TASK_LOCAL_ID", "0"},
      {"PMI_FD", "6"},
      {"PMI_RANK", "2"},
      {"PMI_SIZE", "4"}},
     WireUp::pmi},
    {"srun of a Cray (cray_shasta)", all({slurm, pals, numbers_of_cray}), WireUp::cray_pmi},
    {"srun of a Cray (cray_shasta, before SLURM 23.02)", all({slurm, pals}), WireUp::cray_pmi},
    {"mpiexec of PALS", all({pals, numbers_of_cray}), WireUp::cray_pmi},
    {"mpiexec of PALS", pals, WireUp::cray_pmi, "2", "", ""},
    {"mpiexec of PALS with PMIx", all({pals, numbers_of_cray, pmix}), WireUp::pmix},
    {"srun with PMIx", all({slurm, pmix}), WireUp::pmix},
    {"srun with PMI", all({slurm, {{"PMI_FD", "6"}, {"PMI_RANK", "2"}, {"PMI_SIZE", "4"}}}), WireUp::pmi},
    {"a launcher with PMIx", pmix, WireUp::pmix, "2", "", ""},
    {"srun", slurm, WireUp::none},
};

TEST(Launchers, AreKnownWithTheirNumbers) {
  std::set<std::string_view> seen;
  for (const Case& c : cases) {
    const std::optional<Started> started = started_by(of(c.variables));
    ASSERT_TRUE(started) << c.name;
    EXPECT_EQ(started->by->name, c.name);
    EXPECT_EQ(started->by->wire_up, c.wire_up) << c.name;
    EXPECT_EQ(started->rank, c.rank) << c.name;
    EXPECT_EQ(started->size, c.size) << c.name;
    EXPECT_EQ(started->local_rank, c.local_rank) << c.name;
    EXPECT_TRUE(started->is_one_of_several()) << c.name;
    seen.insert(started->by->name);
  }
  EXPECT_EQ(started_by(of(all({slurm, pals})))->found,
            "PALS_RANKID=2, SLURM_PROCID=2, SLURM_STEP_NUM_TASKS=4, SLURM_LOCALID=0");
}

/// Daemons of mpirun and proxies of Hydra are tasks of srun, and hand srun's variables on to their ranks.
TEST(Launchers, ThatAnotherStartedComeFirst) {
  const Variables outer = all({slurm, pals, numbers_of_cray});
  for (const Case& c : cases) {
    if (c.name.starts_with("srun") || c.name.starts_with("a launcher") ||
        c.name.find("PALS") != std::string::npos)
      continue;
    const std::optional<Started> started = started_by(of(all({c.variables, outer})));
    ASSERT_TRUE(started) << c.name;
    EXPECT_EQ(started->by->name, c.name);
  }
}

TEST(Launchers, AreNotSeenWhereNoneStartedTheProcess) {
  EXPECT_FALSE(started_by(of({})));
  const Variables script{
      {"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"PBS_JOBID", "3"}};
  EXPECT_FALSE(started_by(of(script))) << "the script of a job is no task of a step";
  Variables one = slurm;
  one["SLURM_STEP_NUM_TASKS"] = "1", one["SLURM_PROCID"] = "0";
  EXPECT_FALSE(started_by(of(one))->is_one_of_several());
}

}  // namespace
}  // namespace ztrain::launchers_test
