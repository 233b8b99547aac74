#include "base/launchers.hpp"

#include <cstdlib>

namespace ztrain {

namespace {

constexpr RankVariables of_open_mpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK"},
    of_slurm{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
    of_cray{"PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK"}, of_hydra{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"};

constexpr std::string_view its_own = "start them with the mpirun or mpiexec of that library";
constexpr std::string_view other_plugin =
    "start them with `srun --mpi=pmix` for Open MPI, `--mpi=cray_shasta` for Cray MPICH or `--mpi=pmi2` for "
    "MPICH (`srun --mpi=list` shows what this SLURM has), or with mpirun inside the allocation";
constexpr std::string_view other_pmix =
    "use an MPI library that is built with a PMIx which fits SLURM's (`srun --mpi=list` shows its versions), "
    "`--mpi=cray_shasta` for Cray MPICH or `--mpi=pmi2` for MPICH, or mpirun inside the allocation";
constexpr std::string_view other_pmi =
    "start them with `mpiexec --pmi=pmix` for Open MPI or with another type of PMI that this MPI knows, or "
    "with its own mpirun inside the allocation";
constexpr std::string_view other_flux =
    "start them with `flux run -o pmi=pmix` for Open MPI, or with its own mpirun inside the allocation";

// The plugin cray_shasta has set variables of PMI since SLURM 23.02. Older versions of SLURM and of PALS set
// variables of PALS alone, and PMI_CONTROL_PORT for jobs of several nodes.
constexpr std::array table{
    Launcher{"mpirun of Open MPI 4",
             {"OMPI_MCA_orte_local_daemon_uri", "OMPI_COMM_WORLD_RANK"},
             WireUp::pmix,
             of_open_mpi,
             its_own},
    Launcher{"mpirun of Open MPI 5 (PRRTE)",
             {"PRTE_LAUNCHED", "OMPI_COMM_WORLD_RANK"},
             WireUp::pmix,
             of_open_mpi,
             its_own},
    Launcher{"prun of PRRTE", {"PRTE_LAUNCHED", "PMIX_RANK"}, WireUp::pmix, {"PMIX_RANK", "", ""}, its_own},
    Launcher{"mpirun of Open MPI", {"OMPI_COMM_WORLD_RANK"}, WireUp::pmix, of_open_mpi, its_own},
    Launcher{"Flux",
             {"FLUX_TASK_RANK"},
             WireUp::pmi,
             {"FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID"},
             other_flux},
    Launcher{"mpiexec of MPICH (Hydra)", {"PMI_RANK", "MPI_LOCALRANKID"}, WireUp::pmi, of_hydra, its_own},
    Launcher{"mpiexec of PALS with PMIx",
             {"PALS_RANKID", "PMIX_RANK"},
             WireUp::pmix,
             {"PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID"},
             other_pmi},
    Launcher{"srun of a Cray (cray_shasta)",
             {"PALS_RANKID", "SLURM_PROCID", "PMI_UNIVERSE_SIZE"},
             WireUp::cray_pmi,
             of_cray,
             other_plugin},
    Launcher{"srun of a Cray (cray_shasta, before SLURM 23.02)",
             {"PALS_RANKID", "SLURM_PROCID"},
             WireUp::cray_pmi,
             {"PALS_RANKID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
             other_plugin},
    Launcher{"mpiexec of PALS", {"PALS_RANKID", "PMI_SIZE"}, WireUp::cray_pmi, of_cray, other_pmi},
    Launcher{"mpiexec of PALS", {"PALS_RANKID"}, WireUp::cray_pmi, {"PALS_RANKID", "", ""}, other_pmi},
    Launcher{"srun with PMIx", {"SLURM_PROCID", "PMIX_RANK"}, WireUp::pmix, of_slurm, other_pmix},
    Launcher{"srun with PMI", {"SLURM_PROCID", "PMI_RANK"}, WireUp::pmi, of_slurm, other_plugin},
    Launcher{"a launcher with PMIx",
             {"PMIX_NAMESPACE", "PMIX_RANK"},
             WireUp::pmix,
             {"PMIX_RANK", "", ""},
             its_own},
    Launcher{"a launcher with PMI", {"PMI_RANK"}, WireUp::pmi, of_cray, its_own},
    // The script of a job has SLURM's variables too, but not those of a step.
    Launcher{"srun", {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}, WireUp::none, of_slurm, other_plugin},
};

bool is_known(const Launcher& launcher, const Environment& environment) {
  for (const std::string_view name : launcher.known_by)
    if (!name.empty() && !environment(name)) return false;
  return true;
}

}  // namespace

std::span<const Launcher> launchers() {
  return table;
}

Environment own_environment() {
  return [](std::string_view name) {
    const char* const value = std::getenv(std::string(name).c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

bool Started::is_one_of_several() const {
  return std::atoi(size.c_str()) > 1 || std::atoi(rank.c_str()) > 0;
}

std::optional<Started> started_by(const Environment& environment) {
  for (const Launcher& launcher : table) {
    if (!is_known(launcher, environment)) continue;
    Started started{&launcher, "", "", "", ""};
    const auto find = [&](std::string_view name) {
      if (name.empty()) return std::string();
      const std::string value = environment(name).value_or("");
      const std::string pair = std::string(name) + "=" + value;
      if (!value.empty() && (", " + started.found + ",").find(", " + pair + ",") == std::string::npos)
        started.found += (started.found.empty() ? "" : ", ") + pair;
      return value;
    };
    for (const std::string_view name : launcher.known_by) find(name);
    started.rank = find(launcher.numbers.rank);
    started.size = find(launcher.numbers.size);
    started.local_rank = find(launcher.numbers.local_rank);
    return started;
  }
  return std::nullopt;
}

}  // namespace ztrain
