#include "plan/report/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.hpp"
#include "base/shape.hpp"
#include "base/text.hpp"
#include "config/text/print.hpp"
#include "config/validate/validate.hpp"
#include "plan/job_time.hpp"

namespace ztrain::plan {
namespace {

constexpr double longest_job = 24 * 3600.0;   ///< a job that takes longer requeues itself
constexpr double slower_than_planned = 1.25;  ///< a step, and what is between steps
constexpr double beside_steps = 900;          ///< start and loading
constexpr double process_memory = 4e9;        ///< of a rank in its node: code, libraries, MPI, pages of files

/// "1-02:03:00"; minutes are the least that SLURM counts.
std::string slurm_time(double seconds) {
  const auto minutes = static_cast<std::int64_t>(std::ceil(seconds / 60));
  const std::int64_t days = minutes / (24 * 60), hours = minutes / 60 % 24;
  return fmt::format("{}{:02}:{:02}:00", days > 0 ? fmt::format("{}-", days) : "", hours, minutes % 60);
}

std::string line(const std::string& option, const std::string& comment = "") {
  return fmt::format("{}#SBATCH --{}\n", comment.empty() ? "" : "# " + comment + "\n", option);
}

std::string task_lines(const Cost& c) {
  const int per_node = std::min(c.ranks, c.machine.ranks_per_node);
  const std::int64_t nodes = ceil_div(c.ranks, per_node);
  std::string text = line(fmt::format("nodes={}", nodes));
  // The last node may have fewer.
  if (nodes * per_node != c.ranks) text += line(fmt::format("ntasks={}", c.ranks));
  text += line(fmt::format("ntasks-per-node={}", per_node));
  if (c.machine.device_memory > 0)
    text += line(fmt::format("gpus-per-node={}", per_node));
  else
    text +=
        "# for processors: the deck tells of no devices (cluster.preset), and this ztrain has no kernels for "
        "them\n";
  // Ranks of several nodes wait for the slowest: another job on one of them would slow all.
  if (nodes > 1 || per_node == c.machine.ranks_per_node) text += line("exclusive");
  return text;
}

std::string memory_line(const Cost& c) {
  const int per_node = std::min(c.ranks, c.machine.ranks_per_node);
  const double planned = verdict_of(c).node_needed, processes = per_node * process_memory;
  return line(fmt::format("mem={:.0f}G", std::ceil((planned + processes) / (1 << 30))),
              fmt::format("of a node: {} planned, {} for its processes; SLURM's G is a GiB",
                          format_decimal_bytes(planned), format_decimal_bytes(processes)));
}

double planned_seconds(const Cost& c) {
  return slower_than_planned * job_time(c).seconds() + beside_steps;
}

/// Where the job is longer than launch.sh has it requeue itself unasked.
std::string restarts_line(const Cost& c) {
  constexpr double unasked = 50;
  const double jobs = knows_its_time(c) ? std::ceil(planned_seconds(c) / longest_job) : 1;
  if (jobs <= unasked) return "";
  return fmt::format(
      "# how often the job may requeue itself: twice as often as planned; slurm/launch.sh allows {:.0f} "
      "times unasked\nexport ZTRAIN_RESTARTS={:.0f}\n",
      unasked, 2 * jobs);
}

/// A deck whose length is in epochs leaves the number of its steps to the data.
std::string time_line(const Cost& c) {
  if (c.deck.run.epochs > 0)
    return line(
        "time=" + slurm_time(longest_job),
        "of how many steps an epoch has the plan knows nothing; a job that does not end requeues itself");
  if (c.machine.peak_assumed && c.machine.device_memory <= 0)
    return line("time=" + slurm_time(longest_job),
                "how fast these processors are the plan does not know (cluster.peak_tflops); a job that does "
                "not end requeues itself");
  const std::int64_t steps = config::total_steps(c.deck, 0);
  const double seconds = planned_seconds(c);
  std::string why = fmt::format("{} steps of an estimated {:.3g} s", steps, c.step.seconds);
  if (seconds > longest_job)
    why +=
        fmt::format("; about {:.0f} jobs, each of which requeues itself", std::ceil(seconds / longest_job));
  return line("time=" + slurm_time(std::min(seconds, longest_job)), why);
}

/// A word of a shell.
std::string quoted(const std::string& word) {
  constexpr auto plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

/// SLURM makes file names of it, and a line of #SBATCH ends at a space.
std::string job_name(const std::string& deck) {
  constexpr auto plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  std::string name = "ztrain-" + std::filesystem::path(deck).stem().string();
  for (std::size_t i = 0; (i = name.find_first_not_of(plain, i)) != std::string::npos;) name[i] = '_';
  return name;
}

}  // namespace

std::string sbatch_text(const Plan& plan) {
  const Cost& c = plan.cost;
  REQUIRE(verdict_of(c).fits(),
          "{} does not fit {}, so there is no job to submit: `ztrain plan` without --sbatch says what makes "
          "it fit",
          plan.question.deck, count_text(c.ranks, "rank"));
  std::string text = fmt::format("#!/usr/bin/env bash\n# {} on {}, as `ztrain plan --sbatch` has it.\n",
                                 plan.question.deck, count_text(c.ranks, "rank"));
  text += fmt::format("# Checkpoints: {}.\n", config::saving_summary(c.deck, c.checkpoint_bytes));
  text += line("job-name=" + job_name(plan.question.deck));
  text += task_lines(c) + memory_line(c) + time_line(c);
  text += line("requeue") + line("no-kill") + line("open-mode=append") + line("output=%x-%j.out");
  text += restarts_line(c);
  text += fmt::format("exec \"${{ZTRAIN_ROOT:-$SLURM_SUBMIT_DIR}}/slurm/launch.sh\" {}",
                      quoted(plan.question.deck));
  for (const std::string& word : plan.question.overrides) text += " " + quoted(word);
  return text + "\n";
}

}  // namespace ztrain::plan
