#pragma once
// Where a rank is, for the ranks that wait for it: told by files in a folder that all of them see, since the
// communicators are what hangs.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ztrain::telemetry {

/// The communication of which a rank waits for the end.
struct Waiting {
  std::int64_t sequence = -1;  ///< of the op in its Program's life; -1: it waits for none
  std::string what;            ///< "gather model.layers.2"
  std::vector<int> ranks;      ///< that take part
};

struct Place {
  int rank = 0;
  std::string host;
  int process = 0;
  double written = 0;             ///< seconds since 1970
  std::string phase;              ///< "step 12"
  std::string program;            ///< that is under way, or was last; "" for none
  std::uint64_t fingerprint = 0;  ///< of that Program: stages of a pipeline have others of the same name
  std::int64_t sequence = -1;  ///< of the op that it is at, or was: ranks with the same Program count alike
  std::string at;              ///< "op 18 of 165, forward model.layers.1 micro 0"; "" where none is under way
  Waiting waits_for;
  std::vector<std::string> last;  ///< what it began last, each with its sequence number; the newest last
};

/// Written whole or not at all. Throws Error where it cannot be.
void write_place(const std::string& folder, const Place& place);

/// Removes what ranks have written there.
void remove_places(const std::string& folder);

/// What that rank has written last; nothing where its file is not there or cannot be read.
std::optional<Place> read_place(const std::string& folder, int rank);

/// Where the ranks stand: known[r] is what rank r last wrote. Those that wrote before `since` have not
/// answered.
struct Hang {
  std::vector<std::optional<Place>> known;
  double since = 0;
  bool has_answered(int rank) const;
  bool all_have_answered() const;
};

/// A folder by which ranks tell each other.
struct PlaceFolder {
  std::string path;
  int ranks = 1;

  /// Tells this rank's place. Where a lower one has answered since then: "", at once. Else waits for all of
  /// them, no longer than `patience` seconds, and gives the verdict.
  std::string ask(const Place& mine, double since, double patience) const;
};

/// In plain words who did not come to which communication, and where all others are. Lines.
std::string verdict(const Hang& hang);

/// What the operating system says of a process of this machine: "is stopped", "is gone", ...; "" for nothing
/// unusual.
std::string state_of_process(int process);

/// Returns a line for each stopped process that this process's launcher has started on this machine, each
/// behind an end of line: for ranks that have no folder yet by which to tell each other. "" if there is none.
std::string stopped_neighbours();

}  // namespace ztrain::telemetry
