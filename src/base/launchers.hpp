#pragma once
// Knows the programs that start the ranks of a job, as data: the environment variables by which each is
// known, and those that tell a process its rank. MPI is not asked, so the table serves before MPI starts, for
// other processes, and if MPI and the launcher do not understand each other.

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ztrain {

/// The protocol by which a launcher lets the MPI library of a rank find the other ranks.
enum class WireUp { none, pmi, cray_pmi, pmix };

/// Variables that hold the numbers of a rank; "": the launcher sets none.
struct RankVariables {
  std::string_view rank, size, local_rank;
};

struct Launcher {
  std::string_view name;
  std::array<std::string_view, 3> known_by;  ///< variables that are all set; "" stands for none
  WireUp wire_up;
  RankVariables numbers;
  std::string_view remedy;  ///< what to do if the MPI library does not understand the launcher
};

/// Returns all launchers. If one launcher is usually started by another, the started one stands first,
/// because its ranks also inherit the variables of the other.
std::span<const Launcher> launchers();

/// Returns the value of an environment variable, or nothing if it is not set.
using Environment = std::function<std::optional<std::string>(std::string_view name)>;
/// Returns the environment of this process.
Environment own_environment();

/// How a process was started. Numbers are as the launcher wrote them; "": the launcher did not.
struct Started {
  const Launcher* by;
  std::string rank, size, local_rank;
  std::string found;  ///< variables that tell the launcher and the numbers: "PMI_RANK=1, PMI_SIZE=4"

  /// Returns whether the process has other ranks beside it.
  bool is_one_of_several() const;
};

/// Returns how a process with this environment was started; nothing if by no launcher of the table.
std::optional<Started> started_by(const Environment& environment);

}  // namespace ztrain
