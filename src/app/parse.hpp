#pragma once
// Parsing of a subcommand's words. CLI11 does the work; parse.cpp alone includes its headers, which take
// seconds to compile.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/commands.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ztrain::app {

/// What holds for an option beyond its type.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option& required();
  Option& positive();
  Option& positive_count();  ///< above 0; 70B, 500M and 1.5T are understood
  Option& not_negative();
  template <class T>
  Option& range(T low, T high);  ///< T: int or double
  Option& local_path();          ///< of a file or folder, and no address
  Option& one_of(const std::vector<std::string>& values);
  Option& shows_default();  ///< in --help: the value that the variable has now

 private:
  template <class T, class Legal>
  Option& bound(const std::string& what, Legal legal);

  CLI::Option* option_;  ///< the parser's
};

/// The words that a subcommand takes.
class Parser {
 public:
  Parser(const std::string& description, const std::string& command);
  ~Parser();

  /// A name without "--" is a positional word. `value` outlives the parser, and is written by parse() alone.
  /// T: std::string, int, std::int64_t, std::uint64_t, double, std::vector<std::int32_t> (with commas
  /// between its numbers), or a std::optional of the last. Empty texts and numbers that T does not hold are
  /// refused.
  template <class T>
  Option option(const std::string& name, T& value, const std::string& doc);
  void flag(const std::string& name, bool& value, const std::string& doc);

  /// Words that no option takes are kept, for remaining(), instead of refused.
  void keep_others();
  std::vector<std::string> remaining() const;

  /// Nothing when the words were understood; otherwise the exit code, with help or the error printed by rank
  /// 0.
  std::optional<int> parse(const Invocation& call);

 private:
  std::string option_meant() const;

  std::unique_ptr<CLI::App> app_;
  bool keeps_others_ = false;
};

}  // namespace ztrain::app
