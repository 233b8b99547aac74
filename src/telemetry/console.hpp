#pragma once
// Prints everything that rank 0 tells its user, and says where the program is if nothing else was printed for
// long. If stderr is a terminal, this line of progress is rewritten, and removed before anything else is
// printed. Elsewhere, as in a job's log, it is a line of its own, at growing intervals. Progress goes to
// stderr, because stdout may be a program's input, and Open MPI gives the ranks' stdout a terminal of its
// own. Under mpirun stderr is a pipe, so logs get whole lines.

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

/// Names work that is under way while this lives. Phases nest, and the innermost is shown. They begin and end
/// on the thread that uses the console. Neither allocates.
class Phase {
 public:
  /// Returns where the work is, such as "op 3 of 146". Another thread calls it while the phase lives; it must
  /// not use the console. A lambda that captures one pointer does not allocate.
  using Detail = std::function<std::string()>;

  /// `kind`, such as "reading the checkpoint", outlives the phase. Phases of one kind share the interval
  /// between lines of a log.
  Phase(Console& console, const char* kind, Detail detail = {});
  /// Begins one phase of many: kind "step" and number 3 are shown as "step 3".
  Phase(Console& console, const char* kind, std::int64_t number, Detail detail = {});
  ~Phase();
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

  /// Sets where the work is, such as "1.50 GiB of 4.00 GiB". Cuts what does not fit a line. Any thread may
  /// call it while the phase lives.
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

/// Says where a Console prints, and how patient it is.
struct Outlet {
  std::FILE* lines = stdout;
  std::FILE* progress = stderr;
  int columns = 0;       ///< columns of the terminal that progress goes to; 0: not a terminal
  bool together = true;  ///< whether lines and progress end in one file or terminal
  bool watched = false;  ///< whether lines go to a terminal, which would obey control characters
  double first = 10;     ///< seconds without a line before progress is shown
  double longest = 300;  ///< most seconds between two lines of a log on phases of one kind; intervals start
                         ///< anew when two printed lines are less than `first` apart
  double between_looks = 1;          ///< seconds between looks of a ConsoleThread
  std::function<double()> now = {};  ///< clock in seconds; empty: the machine's steady clock

  /// Returns the process's stdout and stderr.
  static Outlet of_process();
};

class Console {
 public:
  /// Makes a console that prints nothing, for ranks other than 0. If there is a watchdog, phases that begin,
  /// go on or end are progress to it; it must outlive the console.
  explicit Console(Watchdog* watchdog = nullptr);
  explicit Console(Outlet outlet, Watchdog* watchdog = nullptr);
  /// Removes a line that was to be rewritten.
  ~Console();

  /// Prints text on stdout: lines or parts of lines. While a line is unfinished, no progress is printed.
  /// Writes out control characters (printable_lines). Any thread may call it.
  void print(std::string_view text);
  /// Prints bytes as they are, for a model's text. On a terminal, control characters are written out.
  void print_bytes(std::string_view bytes);
  /// Prints text on stderr.
  void print_error(std::string_view text);
  /// Returns a message if part of stdout could not be written, else "".
  std::string unwritten() const;
  /// Removes the line of progress before something else writes to the terminal.
  void clear();

  /// Shows where the program is if that is due. A ConsoleThread calls it again and again.
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
  double last_output_ = 0;   ///< time of the last output of any kind
  double last_line_ = 0;     ///< time of the last printed line
  bool shown_ = false;       ///< whether a line is shown that is to be rewritten or removed
  int error_ = 0;            ///< errno of the first failed write to `lines`
  bool unfinished_ = false;  ///< whether the last printed line has no end yet
  /// Intervals of a log by kind of phase; outlet_.first if a kind is missing.
  std::map<std::string, double, std::less<>> intervals_;
};

/// Looks at a console from its own thread while it lives. Signals that this thread should not take must be
/// blocked before.
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
