#pragma once
// The program's commands, called in this process as main calls them, and what they print.

#include <string>
#include <vector>

#include "runtime/session/session.hpp"

namespace ztrain::damaged_files {

using Words = std::vector<std::string>;

/// How a command ended.
struct Outcome {
  Words words;
  bool accepted = false;     ///< it would have ended with status 0
  bool foreign = false;      ///< refused with an exception that is not the program's own
  std::string message{};     ///< of the exception
  std::string out{}, err{};  ///< printed
};

/// Files without names in place of stdout and stderr. Made before a fork, so that the parent can read what a
/// child had printed when it died.
class Capture {
 public:
  Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture();

  /// From now on this process prints into the files.
  void take_over() const;
  void clear() const;
  std::string out() const { return text(out_); }
  std::string err() const { return text(err_); }

 private:
  static std::string text(int descriptor);
  int out_, err_;
};

/// words[0]: a command of the program, or the path of a deck to train.
Outcome run_command(const runtime::Session& session, const Capture& capture, const Words& words);

/// "ztrain check deck.toml --run.steps=1"
std::string text_of(const Words& words);

}  // namespace ztrain::damaged_files
