#include "app/parse.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <type_traits>

#include "base/fits_fp32.hpp"
#include "base/plain_text.hpp"
#include "base/text.hpp"
#include "telemetry/console.hpp"

namespace ztrain::app {

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::positive() {
  option_->check(CLI::PositiveNumber);
  return *this;
}

Option& Option::not_negative() {
  option_->check(CLI::NonNegativeNumber);
  return *this;
}

template <class T>
Option& Option::range(T low, T high) {
  option_->check(CLI::Range(low, high));
  return *this;
}

template Option& Option::range(int, int);
template Option& Option::range(double, double);

Option& Option::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

Option& Option::comma_separated() {
  option_->delimiter(',');
  return *this;
}

Option& Option::shows_default() {
  option_->capture_default_str();
  return *this;
}

Parser::Parser(const std::string& description, const std::string& command)
    : app_(std::make_unique<CLI::App>(description, command)) {}

Parser::~Parser() = default;

namespace {

/// Comparisons let a NaN pass every bound.
std::string not_a_number(const std::string& text) {
  double x = 0;
  const bool number = CLI::detail::lexical_cast(text, x);
  return !number || fits_fp32(x) ? "" : fmt::format("{} is no number that fp32 holds", text);
}

}  // namespace

template <class T>
Option Parser::option(const std::string& name, T& value, const std::string& doc) {
  CLI::Option* option = app_->add_option(name, value, doc);
  if constexpr (std::is_floating_point_v<T>) option->check(not_a_number);
  return Option(option);
}

template Option Parser::option(const std::string&, std::string&, const std::string&);
template Option Parser::option(const std::string&, int&, const std::string&);
template Option Parser::option(const std::string&, std::int64_t&, const std::string&);
template Option Parser::option(const std::string&, std::uint64_t&, const std::string&);
template Option Parser::option(const std::string&, double&, const std::string&);
template Option Parser::option(const std::string&, std::vector<std::int32_t>&, const std::string&);
template Option Parser::option(const std::string&, std::optional<std::vector<std::int32_t>>&,
                               const std::string&);

void Parser::flag(const std::string& name, bool& value, const std::string& doc) {
  app_->add_flag(name, value, doc);
}

void Parser::keep_others() {
  app_->allow_extras();
}

std::vector<std::string> Parser::remaining() const {
  return app_->remaining();
}

/// The option that an unknown one is a slip of; overrides, whose keys have a dot, are none.
std::string Parser::option_meant() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_options())
    if (!option->get_lnames().empty()) names.push_back("--" + option->get_lnames().front());
  for (const std::string& word : app_->remaining()) {
    const std::string name = word.substr(0, word.find('='));
    if (!name.starts_with("--") || name.find('.') != std::string::npos) continue;
    const std::string best = nearest(name, names);
    if (!best.empty()) return fmt::format("there is no option {}: did you mean {}?", printable(name), best);
  }
  return "";
}

std::optional<int> Parser::parse(const Invocation& call) {
  std::vector<std::string> words(call.words.rbegin(), call.words.rend());  // CLI11 takes them last first
  try {
    app_->parse(words);
    const std::string meant = option_meant();
    if (meant.empty()) return std::nullopt;
    call.console.print_error(fmt::format("{}: {}\n", app_->get_name(), meant));
    return 2;
  } catch (const CLI::CallForHelp&) {
    call.console.print(app_->help());
    return 0;
  } catch (const CLI::ParseError& e) {
    call.console.print_error(
        fmt::format("{}: {}\nrun with --help for what it takes\n", app_->get_name(), e.what()));
    return 2;
  }
}

}  // namespace ztrain::app
