#pragma once
// All that rank 0 tells its user goes through a Console, which also says where the program is while nothing
// else has been printed for long. That line is rewritten where the user watches (stderr is a terminal), and
// is gone before anything else is printed; elsewhere, as in a job's log, it is a line of its own, at
// intervals that grow. It goes to stderr: stdout may be a program's input, and Open MPI gives the ranks'
// stdout a terminal of its own, whatever becomes of it. Under mpirun stderr is a pipe, so that logs get whole
// lines.

#include <array>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace ztrain::telemetry {

class Console;
class Watchdog;

/// What is under way, for as long as it lives. Phases nest: the innermost is told of. They begin
/// and end in one thread, that which uses the console. Neither beginning nor ending one allocates.
class Phase {
 public:
  /// Where the work is: "op 3 of 146". Called from another thread while the phase lives; it must not use the
  /// console. A lambda that captures one pointer does not allocate.
  using Detail = std::function<std::string()>;

  /// kind: "reading the checkpoint", which outlives the phase. Phases of one kind share the interval between
  /// the lines of a log.
  Phase(Console& console, const char* kind, Detail detail = {});
  /// One of many: kind "step" and number 3 are told of as "step 3".
  Phase(Console& console, const char* kind, std::int64_t number, Detail detail = {});
  ~Phase();
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

  /// Where the work is, from now on: "1.50 GiB of 4.00 GiB". Kept as far as it fits a line. Any thread, while
  /// the phase lives.
  void at(std::string_view where);

 private:
  friend class Console;
  std::string text() const;

  Console& console_;
  const char* kind_;
  std::optional<std::int64_t> number_;
  Detail detail_;
  std::array<char, 160> where_{};
  std::size_t where_size_ = 0;
  double began_ = 0;
  Phase* outer_ = nullptr;
};

/// Where a Console prints, and how patient it is.
struct Outlet {
  std::FILE* lines = stdout;
  std::FILE* progress = stderr;
  int columns = 0;                   ///< of the terminal that progress goes to; 0: none
  bool together = true;              ///< lines and progress end in one file or terminal
  bool watched = false;              ///< lines go to a terminal, which would obey control characters
  double first = 10;                 ///< seconds without a line before one of progress
  double longest = 300;              ///< seconds between two lines of a log on phases of one kind, at most;
                                     ///< they grow anew once two printed lines are less than `first` apart
  double between_looks = 1;          ///< of a ConsoleThread, in seconds of the machine's clock
  std::function<double()> now = {};  ///< seconds; empty: the machine's steady clock

  /// The process's stdout and stderr.
  static Outlet of_process();
};

class Console {
 public:
  /// Says nothing: for ranks other than 0. Where there is a watchdog, phases that begin, go on or end are
  /// progress to it; it lives longer.
  explicit Console(Watchdog* watchdog = nullptr);
  explicit Console(Outlet outlet, Watchdog* watchdog = nullptr);
  /// Removes what was to be rewritten.
  ~Console();

  /// Prints text on stdout: lines, or parts of one, behind which no progress is told of where it would come
  /// between. What names in it would tell a terminal to do is written out (printable_lines). Any thread.
  void print(std::string_view text);
  /// The same as it is, for what a model says; on a terminal control characters are written out.
  void print_bytes(std::string_view bytes);
  /// The same on stderr.
  void print_error(std::string_view text);
  /// That some of what was printed on stdout could not be written; "" where all was.
  std::string unwritten() const;
  /// Before something else than this object writes to the terminal.
  void clear();

  /// Says where the program is if that is due. Called over and over, by a ConsoleThread.
  void look();
  double between_looks() const { return outlet_.between_looks; }

 private:
  friend class Phase;
  void begin(Phase& phase);
  void end(const Phase& phase);
  void beat(const char* phase) const;
  bool speaks() const { return outlet_.lines != nullptr; }
  void write(std::FILE* file, std::string_view text);
  void remove_line();
  double interval_of(const Phase& phase) const;
  void rewrite(std::string line);
  void append(const Phase& phase, const std::string& line);

  mutable std::timed_mutex mutex_;
  Outlet outlet_;
  Watchdog* watchdog_ = nullptr;
  Phase* innermost_ = nullptr;
  double last_output_ = 0;                                ///< of any kind
  double last_line_ = 0;                                  ///< that was printed
  bool shown_ = false;                                    ///< a line that is to be rewritten or removed
  int error_ = 0;                                         ///< of the first failed write to lines (errno)
  bool unfinished_ = false;                               ///< the last line printed has no end yet
  std::map<std::string, double, std::less<>> intervals_;  ///< of a log, by kind of phase; else outlet_.first
};

/// Looks at a console from a thread of its own, while it lives. Signals that are to be blocked in that thread
/// are blocked before.
class ConsoleThread {
 public:
  explicit ConsoleThread(Console& console);
  ~ConsoleThread();

 private:
  void watch();

  Console& console_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ztrain::telemetry
