#pragma once
// Parses a subcommand's words with CLI11. Only parse.cpp includes its headers, which take seconds to compile.

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

/// Constraints on an option beyond its type.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option& required();
  Option& positive();
  Option& positive_count();  ///< accepts numbers above 0, also as 70B, 500M or 1.5T
  Option& not_negative();
  template <class T>
  Option& range(T low, T high);  ///< T: int or double
  Option& local_path();          ///< accepts the path of a file or folder, not an address
  Option& one_of(const std::vector<std::string>& values);
  Option& shows_default();  ///< shows the present value of the variable in --help

 private:
  template <class T, class Legal>
  Option& bound(const std::string& what, Legal legal);

  CLI::Option* option_;  ///< owned by the parser
};

/// The words that a subcommand takes.
class Parser {
 public:
  Parser(const std::string& description, const std::string& command);
  ~Parser();

  /// Adds an option. A name without "--" is a positional word. `value` outlives the parser, and only parse()
  /// writes it. T is std::string, int, std::int64_t, std::uint64_t, double, std::vector<std::int32_t>
  /// (numbers with commas between), a std::optional of the last, or std::vector<std::string> (words up to the
  /// next option). Empty texts and numbers that T does not hold are refused.
  template <class T>
  Option option(const std::string& name, T& value, const std::string& doc);
  void flag(const std::string& name, bool& value, const std::string& doc);

  /// Keeps words that no option takes, for remaining(), instead of refusing them.
  void keep_others();
  std::vector<std::string> remaining() const;

  /// Returns nothing if the words were understood. Otherwise returns the exit code; rank 0 has printed help
  /// or the error.
  std::optional<int> parse(const Invocation& call);

 private:
  std::string option_meant() const;

  std::unique_ptr<CLI::App> app_;
  bool keeps_others_ = false;
};

}  // namespace ztrain::app
