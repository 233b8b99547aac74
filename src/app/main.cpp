#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/commands.hpp"
#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/text.hpp"
#include "config/fields/fields.hpp"
#include "files/file.hpp"
#include "kernel_interface/target.hpp"
#include "kernels/launch/exec.hpp"
#include "runtime/session/launcher.hpp"
#include "runtime/session/limits.hpp"
#include "runtime/session/mpi_library.hpp"
#include "runtime/session/session.hpp"
#include "telemetry/console.hpp"
#include "telemetry/watchdog.hpp"

namespace {

using namespace ztrain;

/// Whether a command's result is text on stdout, or files that stdout only reports on.
enum class Product { text, files };

struct Command {
  std::string_view name, takes, help;
  int (*run)(const app::Invocation&);
  Product product = Product::text;
};

constexpr std::array<Command, 13> commands{{
    {"check", "DECK [--ranks N] [--without-files]",
     "validate a deck, its data and weights; with ranks also mesh, batch and memory", app::check},
    {"deck", "[--markdown]", "print a commented template of a deck", app::deck},
    {"translate", "FILE... [--ranks N] [--to DECK]",
     "a commented deck from configurations of DeepSpeed, Accelerate, TRL, axolotl, torchtitan",
     app::translate},
    {"plan", "DECK [--ranks N] [--fit] [--compare] [--json] [--sbatch], or --parameters COUNT [--ranks N]",
     "memory, traffic and time of a job before it runs; what makes it fit; its script for SLURM", app::plan},
    {"ranks", "DECK --most N [--per-node N]", "how many ranks, up to so many, the deck takes", app::ranks},
    {"bench", "DECK [--steps N] [--kernels] [--json FILE], or --calibrate",
     "speed of a step on random tokens, and where its time goes; rates of this machine for plans",
     app::bench},
    {"links", "[--mebibytes N]", "how fast the nodes of a job reach each other", app::links},
    {"generate", "MODEL --prompt TEXT", "continue a text", app::generate},
    {"evaluate", "MODEL --data FILE ... | --choices FILE [--json]",
     "loss and perplexity on files, or accuracy in multiple choice", app::evaluate},
    {"export", "CHECKPOINT --to FOLDER", "the weights as a Hugging Face model", app::export_model,
     Product::files},
    {"inspect", "CHECKPOINT [--tensors] [--deck] [--json]", "what it holds: step, mesh, sizes, tensors",
     app::inspect},
    {"verify", "CHECKPOINT [--json]", "are its bytes those that were written?", app::verify},
    {"diff", "CHECKPOINT CHECKPOINT [--json]", "how their tensors differ", app::diff},
}};
constexpr Command training{"", "", "", app::train, Product::files};

std::string usage() {
  std::string text = "ztrain " ZTRAIN_VERSION
                     ": trains transformer language models too big for one device\n\n"
                     "  ztrain DECK\n      train as the deck says\n";
  for (const Command& c : commands)
    text += fmt::format("  ztrain {} {}\n      {}\n", c.name, c.takes, c.help);
  return text +
         "\nBehind a DECK, --section.key=value gives any of its keys, and wins over the file; docs/inputs.md "
         "lists them.\n`ztrain COMMAND --help` has each of its options. With --all, errors name all that "
         "they "
         "list.\n"
         "Under MPI: mpirun -np 8 ztrain DECK, or srun ztrain DECK.\n";
}

/// Returns a message on a first word that is neither a command nor a file, or "" if it may be a deck's name.
std::string meant_by(const std::string& word) {
  std::error_code error;
  if (std::filesystem::exists(word, error)) return "";
  if (word.starts_with("-"))
    return fmt::format("'{}' stands where a command or a deck belongs: `ztrain --help` shows the order",
                       word);
  if (word == "train" || word == "run" || word == "fit" || word == "finetune")
    return fmt::format("there is no command '{}': `ztrain DECK` trains", word);
  std::vector<std::string> names;
  for (const Command& c : commands) names.emplace_back(c.name);
  const std::string best = nearest(word, names);
  if (!best.empty()) return fmt::format("there is no command '{}': did you mean `ztrain {}`?", word, best);
  if (word.find_first_of("./") != std::string::npos) return "";
  return fmt::format("'{}' is neither a command nor a deck; commands are {}", printable(word),
                     fmt::join(names, ", "));
}

/// Reports output that could not be written. Fails unless the command's files are its result.
void require_printed(const runtime::Session& session, telemetry::Console& console, Product product) {
  const std::string failure = console.unwritten();
  session.agree("printing", [&] { REQUIRE(failure.empty() || product == Product::files, "{}", failure); });
  if (!failure.empty()) console.print_error(fmt::format("ztrain: warning: {}\n", failure));
}

int run(const Command& command, const app::Invocation& call) {
  const int status = command.run(call);
  require_printed(call.session, call.console, command.product);
  return status;
}

int dispatch(const runtime::Session& session, telemetry::Console& console, telemetry::Watchdog& watchdog,
             std::vector<std::string> words) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    console.print(usage());
    require_printed(session, console, Product::text);
    return words.empty() ? 2 : 0;
  }
  for (const Command& c : commands)
    if (words[0] == c.name) return run(c, {session, console, watchdog, {words.begin() + 1, words.end()}});
  if (const std::string meant = meant_by(words[0]); !meant.empty()) {
    console.print_error(fmt::format("ztrain: {}\n", meant));
    return 2;
  }
  return run(training, {session, console, watchdog, std::move(words)});
}

/// Returns the watchdog's timeout until the deck has been read: the last one on the command line, or the
/// key's default. An illegal value is refused with the deck.
double timeout_of(const std::vector<std::string>& words) {
  constexpr std::string_view key = "watchdog.timeout";
  double timeout = std::stod(config::find_field(key)->standard);
  for (std::string_view word : words) {
    if (word.starts_with("--")) word.remove_prefix(2);
    if (!word.starts_with(key) || word.size() <= key.size() || word[key.size()] != '=') continue;
    word.remove_prefix(key.size() + 1);
    double given = 0;
    const auto read = std::from_chars(word.data(), word.data() + word.size(), given);
    if (read.ec == std::errc() && given >= 0 && given <= 1e9) timeout = given;
  }
  return timeout;
}

/// The console that rank 0 prints to; other ranks print nothing.
class RankConsole {
 public:
  RankConsole(const runtime::Session& session, telemetry::Watchdog& watchdog)
      : watchdog_(watchdog), silent_(&watchdog) {
    if (session.rank() == 0) {
      console_.emplace(telemetry::Outlet::of_process(), &watchdog);
      thread_.emplace(*console_);
    }
    watchdog.set_name(fmt::format("rank {} ({})", session.rank(), session.host()));
    watchdog.set_action([this](const std::string& message) {
      get().clear();
      telemetry::Watchdog::print(message);
      runtime::end_stuck(1);
    });
  }
  ~RankConsole() { watchdog_.set_action(telemetry::Watchdog::print_and_exit); }
  telemetry::Console& get() { return console_ ? *console_ : silent_; }

 private:
  telemetry::Watchdog& watchdog_;
  telemetry::Console silent_;
  std::optional<telemetry::Console> console_;
  std::optional<telemetry::ConsoleThread> thread_;
};

int version() {
  fmt::print("ztrain {}, built for {}, with {} and {} for NVMe drives\n", ZTRAIN_VERSION,
             name_of(build_target()), runtime::mpi_library(), ZTRAIN_NVME);
  if (std::fflush(stdout) == 0) return 0;
  std::perror("ztrain: cannot write to stdout");
  return 1;
}

/// Does the whole work of a rank once MPI has started.
int run_rank(const runtime::Session& session, telemetry::Watchdog& watchdog,
             std::vector<std::string> words) try {
  const bool all = std::erase(words, "--all") > 0;
  RankConsole console(session, watchdog);  // after the session, because threads inherit the blocked signals
  watchdog.beat("reading the command line");
  int code = 1;
  try {
    code = dispatch(session, console.get(), watchdog, std::move(words));
  } catch (const runtime::AgreedError& e) {
    console.get().print_error(fmt::format("ztrain: {}\n", all ? e.what() : with_short_lists(e.what())));
  }
  kernels::finalize_backend();
  if (code != 0) runtime::end_all(session, code);
  return code;
} catch (const std::exception& e) {
  session.abort_all(reason_of(e));
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  // --version works without MPI, because slurm/launch.sh asks outside of srun, where some MPI libraries
  // cannot start.
  if (argc == 2 && std::string_view(argv[1]) == "--version") return version();
  const std::string too_low = runtime::raise_limits();
  REQUIRE(too_low.empty(), "{}", too_low);
  let_large_files_fail();
  telemetry::Watchdog watchdog(timeout_of(words));
  watchdog.beat("starting MPI");
  const runtime::Session session(&argc, &argv);
  return run_rank(session, watchdog, words);
} catch (const std::exception& e) {
  fmt::print(stderr, "ztrain: {}\n", reason_of(e));
  return 1;
}
