#pragma once
// Declares the subcommands, one source file each. They get the words after their name, throw Error, and
// return the exit code.

#include <string>
#include <vector>

namespace ztrain::runtime {
class Session;
}

namespace ztrain::telemetry {
class Console;
class Watchdog;
}  // namespace ztrain::telemetry

namespace ztrain::app {

/// A subcommand runs with this: its words, its MPI session, the console of rank 0, and the watchdog, to which
/// phases of the console are progress.
struct Invocation {
  const runtime::Session& session;
  telemetry::Console& console;
  telemetry::Watchdog& watchdog;
  std::vector<std::string> words;
};

/// Exit code of a run that a signal ended after its checkpoint: EX_TEMPFAIL of sysexits.h, "try again".
inline constexpr int saved_status = 75;

int train(const Invocation& call);         ///< ztrain DECK [--section.key=value ...]
int check(const Invocation& call);         ///< ztrain check DECK [--ranks N] [--section.key=value ...]
int deck(const Invocation& call);          ///< ztrain deck [--markdown]
int translate(const Invocation& call);     ///< ztrain translate FILE... [--to FILE] [--ranks N] ...
int plan(const Invocation& call);          ///< ztrain plan DECK [--ranks N] [--fit] [--json] ...
int ranks(const Invocation& call);         ///< ztrain ranks DECK --most N [--per-node N] ...
int bench(const Invocation& call);         ///< ztrain bench DECK [--steps N] [--kernels] [--json FILE] ...
int links(const Invocation& call);         ///< ztrain links [--mebibytes N] [--times N] [--timeout S]
int generate(const Invocation& call);      ///< ztrain generate MODEL --prompt TEXT
int evaluate(const Invocation& call);      ///< ztrain evaluate MODEL --data FILE... | --choices FILE
int export_model(const Invocation& call);  ///< ztrain export CHECKPOINT --to DIR
int inspect(const Invocation& call);       ///< ztrain inspect CHECKPOINT [--tensors] [--deck] [--json]
int verify(const Invocation& call);        ///< ztrain verify CHECKPOINT [--json]
int diff(const Invocation& call);          ///< ztrain diff CHECKPOINT CHECKPOINT [--json]

}  // namespace ztrain::app
