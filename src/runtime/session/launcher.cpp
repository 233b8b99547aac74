#include "runtime/session/launcher.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

#include "base/error.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::runtime {

namespace {

/// Beginnings of the names of Open MPI's programs that start ranks; some names end with the version.
constexpr std::array<std::string_view, 4> starters{"mpirun", "mpiexec", "orterun", "orted"};

/// Returns the name of the program of Open MPI that started this process itself, or "". A shell that mpirun
/// has started has work of its own, which must go on.
std::string starter_of_process() {
  std::string name;
  std::getline(std::ifstream(fmt::format("/proc/{}/comm", ::getppid())), name);
  const bool starts =
      std::ranges::any_of(starters, [&](std::string_view starter) { return name.starts_with(starter); });
  return starts ? name : "";
}

/// PMIx_Abort of the PMIx library that Open MPI has loaded into this process. It is null unless mpirun of
/// Open MPI 4 has started this very process: srun prints lines of its own about such requests, and newer
/// launchers have not been tried.
using PmixAbort = int (*)(int status, const char* message, void* ranks, std::size_t count);
PmixAbort pmix_abort_of_mpirun() {
  if (std::getenv("OMPI_MCA_orte_local_daemon_uri") == nullptr || starter_of_process().empty())
    return nullptr;
  void* library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<PmixAbort>(dlsym(library, "PMIx_Abort"));
}

/// Returns the name of the MPI library, without the particulars that follow it.
std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "an unknown MPI library";
  std::string name(text, static_cast<std::size_t>(length));
  name.resize(std::min(name.find_first_of(",\n"), name.size()));
  std::ranges::replace(name, '\t', ' ');
  return name;
}

/// Returns whether the MPI library of this build may find other ranks by what this launcher offers, or by a
/// server of PMIx beside it. Otherwise Open MPI ends the process with its own message within a step of SLURM.
bool may_find_ranks(WireUp wire_up) {
#ifdef OPEN_MPI
  return wire_up == WireUp::pmi || wire_up == WireUp::pmix || std::getenv("PMIX_NAMESPACE") != nullptr;
#else
  return wire_up != WireUp::none;
#endif
}

}  // namespace

void require_one_job(const std::optional<Started>& started) {
  if (!started || !started->is_one_of_several()) return;
  // One of the tasks prints it. If the launcher gives no number of tasks, rank 0 does not know of the others.
  const char* const prints = started->size.empty() ? "1" : "0";
  if (!started->rank.empty() && started->rank != prints) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    std::_Exit(1);
  }
  throw Error(
      fmt::format("{} has started {} tasks ({}), and to MPI each is a job of one rank. ztrain is linked with "
                  "{}: {}",
                  started->by->name, started->size.empty() ? "several" : started->size, started->found,
                  mpi_library(), started->by->remedy));
}

void prepare_process(const std::optional<Started>& started) {
  const bool alone = !started || !may_find_ranks(started->by->wire_up);
  if (alone) require_one_job(started);
  // Without this a process that runs alone starts a daemon, which takes 0.3 s.
  setenv("OMPI_MCA_ess_singleton_isolated", "1", /*overwrite=*/0);
  // All such processes of a user would share one folder in /tmp, which the first to end removes while the
  // next is starting in it. A single process does not need it.
  if (alone) setenv("OMPI_MCA_orte_create_session_dirs", "0", /*overwrite=*/0);
}

bool ask_launcher_to_end(int status) {
  const PmixAbort abort = pmix_abort_of_mpirun();
  if (abort == nullptr) return false;
  // Stderr reaches mpirun by another path than the request: without a pause it may end the ranks first.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return abort(status, "", nullptr, 0) == 0;
}

void end_all(const Session& session, int status) {
  session.barrier();
  const bool asked = session.rank() == 0 ? ask_launcher_to_end(status) : pmix_abort_of_mpirun() != nullptr;
  if (asked) std::this_thread::sleep_for(std::chrono::seconds(2));
}

void end_stuck(int status) {
  if (ask_launcher_to_end(status)) std::this_thread::sleep_for(std::chrono::seconds(2));
  // A launcher forwards stderr on another path than the news of this process's end.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::_Exit(status);
}

namespace {
std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Returns the end of the allocation. For a job without a limit, SLURM names one many years away.
std::optional<double> end_of_allocation() {
  const std::string text = environment("SLURM_JOB_END_TIME");
  double end = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), end);
  const bool whole = read.ec == std::errc() && read.ptr == text.data() + text.size();
  return whole && end > 0 && !environment("SLURM_JOB_ID").empty() ? std::optional(end) : std::nullopt;
}

}  // namespace

std::optional<MpirunEnd> mpirun_end() {
  if (environment("OMPI_COMM_WORLD_SIZE").empty() || !environment("SLURM_STEP_ID").empty())
    return std::nullopt;
  // Ranks on other nodes than mpirun's are children of its daemon, orted.
  const std::string starter = starter_of_process();
  MpirunEnd end{.program = starter.empty() || starter == "orted" ? "mpirun" : starter};
  const std::string wait = environment("OMPI_MCA_odls_base_sigkill_timeout");
  std::from_chars(wait.data(), wait.data() + wait.size(), end.wait);
  return end;
}

SlurmHints slurm_hints() {
  return {environment("SLURM_JOB_ID"), std::atoi(environment("SLURM_RESTART_COUNT").c_str()),
          std::atoi(environment("ZTRAIN_TRY").c_str()), end_of_allocation()};
}

}  // namespace ztrain::runtime
