#pragma once
// Tells where a rank is to the ranks that wait for it, by files in a folder that all of them see, since the
// communicators are what hangs.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ztrain::telemetry {

/// A communication whose end a rank waits for.
struct Waiting {
  std::int64_t sequence = -1;  ///< number of the op in its Program's life; -1: the rank waits for none
  std::string what;            ///< such as "gather model.layers.2"
  std::vector<int> ranks;      ///< ranks that take part
};

struct Place {
  int rank = 0;
  std::string host;
  int process = 0;
  double written = 0;   ///< seconds since 1970
  std::string phase;    ///< such as "step 12"
  std::string program;  ///< name of the Program that is under way or ran last; "" for none
  /// Fingerprint of that Program: other stages of a pipeline have other Programs of the same name.
  std::uint64_t fingerprint = 0;
  /// Number of the op that the rank is at, or was; comparable between ranks with the same Program.
  std::int64_t sequence = -1;
  std::string at;  ///< such as "op 18 of 165, forward model.layers.1 micro 0"; "" if no op is under way
  Waiting waits_for;
  /// Ops that it began last, each with its sequence number; the newest is last.
  std::vector<std::string> last;
};

/// Writes the place completely or not at all. Throws Error if that fails.
void write_place(const std::string& folder, const Place& place);

/// Removes the files of all ranks there.
void remove_places(const std::string& folder);

/// Returns what that rank wrote last, or nothing if its file is missing or cannot be read.
std::optional<Place> read_place(const std::string& folder, int rank);

/// The ranks' places: known[r] is what rank r last wrote. A rank that wrote before `since` has not answered.
struct Hang {
  std::vector<std::optional<Place>> known;
  double since = 0;
  bool has_answered(int rank) const;
  bool all_have_answered() const;
};

/// A folder by which ranks exchange their places.
struct PlaceFolder {
  std::string path;
  int ranks = 1;

  /// Writes this rank's place. If a lower rank has answered since then, returns "" at once. Otherwise waits
  /// for all ranks, at most `patience` seconds, and returns the verdict.
  std::string ask(const Place& mine, double since, double patience) const;
};

/// Says in plain words who did not come to which communication, and where all others are. Returns lines.
std::string verdict(const Hang& hang);

/// Returns the operating system's word on a process of this machine: "is stopped", "is gone", ...; "" if
/// nothing is unusual.
std::string state_of_process(int process);

/// Returns a line, each begun by a newline, for each stopped process that this process's launcher started on
/// this machine. It serves ranks that have no folder yet by which to exchange places. Returns "" if there is
/// none.
std::string stopped_neighbours();

}  // namespace ztrain::telemetry
