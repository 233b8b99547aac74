#include "app/parse.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <string_view>
#include <type_traits>

#include "base/dtype.hpp"
#include "base/plain_text.hpp"
#include "base/text.hpp"
#include "files/file.hpp"
#include "telemetry/console.hpp"

namespace ztrain::app {

/// Refuses a number out of bounds. CLI11's own messages print numbers of hundreds of digits.
template <class T, class Legal>
Option& Option::bound(const std::string& what, Legal legal) {
  option_->check([=](const std::string& text) {
    T x = 0;
    return CLI::detail::lexical_cast(text, x) && legal(x)
               ? ""
               : fmt::format("{} is not legal: expected {}", printable(text), what);
  });
  return *this;
}

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::positive() {
  return bound<double>("above 0", [](double x) { return x > 0; });
}

Option& Option::positive_count() {
  option_->transform([](std::string text) {
    constexpr std::string_view letters = "KMBT";
    const auto at = text.empty() ? letters.npos : letters.find(static_cast<char>(std::toupper(text.back())));
    if (at != letters.npos) text.replace(text.size() - 1, 1, fmt::format("e{}", 3 * (at + 1)));
    return text;
  });
  return bound<double>("a number above 0, such as 70e9 or 70B", [](double x) { return x > 0; });
}

Option& Option::not_negative() {
  return bound<double>("0 or more", [](double x) { return x >= 0; });
}

template <class T>
Option& Option::range(T low, T high) {
  return bound<T>(fmt::format("from {} to {}", low, high), [=](T x) { return low <= x && x <= high; });
}

template Option& Option::range(int, int);
template Option& Option::range(double, double);

Option& Option::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  return *this;
}

Option& Option::local_path() {
  option_->check(why_not_local);
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

/// Refuses NaN, which passes every comparison with a bound.
std::string not_a_number(const std::string& text) {
  double x = 0;
  const bool number = CLI::detail::lexical_cast(text, x);
  return !number || fits_fp32(x) ? "" : fmt::format("{} is no number that fp32 holds", printable(text));
}

template <class T>
bool is_whole(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

/// Refuses numbers that the type does not hold. CLI11 would take the nearest one, and the largest for minus
/// one.
template <class T>
std::string not_whole(const std::string& text) {
  T value = 0;
  if (is_whole(text, value)) return "";
  return fmt::format("{} is not legal: expected a whole number from {} to {}", printable(text),
                     std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
}

std::string empty_text(const std::string& text) {
  return text.empty() ? "an empty text is no value: give one, or leave the option out" : "";
}

using Ids = std::vector<std::int32_t>;

/// Parses a text such as "1,2,3". CLI11 would skip empty places between commas.
Ids ids_of(const std::string& text, const std::string& name) {
  Ids ids;
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(',', begin);
    const bool whole = is_whole(std::string_view(text).substr(begin, end - begin), ids.emplace_back());
    if (!whole)
      throw CLI::ValidationError(
          name, fmt::format("'{}' is not legal: expected token ids with commas between them, such as 1,2,3",
                            printable(text, 100)));
  }
  return ids;
}

}  // namespace

template <class T>
Option Parser::option(const std::string& name, T& value, const std::string& doc) {
  if constexpr (std::is_same_v<T, Ids> || std::is_same_v<T, std::optional<Ids>>) {
    const auto read = [&value, name](const std::string& text) { value = ids_of(text, name); };
    return Option(app_->add_option_function<std::string>(name, read, doc));
  } else {
    CLI::Option* option = app_->add_option(name, value, doc);
    if constexpr (std::is_floating_point_v<T>)
      option->check(not_a_number);
    else if constexpr (std::is_integral_v<T>)
      option->check(not_whole<T>);
    else
      option->check(empty_text);
    return Option(option);
  }
}

template Option Parser::option(const std::string&, std::string&, const std::string&);
template Option Parser::option(const std::string&, std::vector<std::string>&, const std::string&);
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
  keeps_others_ = true;
}

std::vector<std::string> Parser::remaining() const {
  return app_->remaining();
}

/// Returns the option that a word looks like, such as --top_k or --max-new-tokens, or "".
static std::string option_like(std::string name, const std::vector<std::string>& names) {
  std::replace(name.begin(), name.end(), '_', '-');
  if (const std::string best = nearest(name, names); !best.empty()) return best;
  // "--max-tokens" ends with "-tokens", and "--device-memory" with "-memory".
  const auto ends_it = [&](const std::string& known) {
    return name.ends_with(known.substr(1)) || known.ends_with(name.substr(1));
  };
  const auto found = std::find_if(names.begin(), names.end(), ends_it);
  return found == names.end() ? "" : *found;
}

/// Returns whether the word is a short option such as "-n", not a negative number.
static bool is_short_option(const std::string& name) {
  return name.size() > 1 && name[0] == '-' && std::isalpha(static_cast<unsigned char>(name[1])) != 0;
}

/// Returns the option that an unknown one is a slip of. Overrides, whose keys have a dot, are not options.
std::string Parser::option_meant() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_options())
    if (!option->get_lnames().empty()) names.push_back("--" + option->get_lnames().front());
  for (const std::string& word : app_->remaining()) {
    const std::string name = word.substr(0, word.find('='));
    if (is_short_option(name)) {
      const bool of_launchers = name == "-n" || name == "-np";
      const bool ranks = of_launchers && std::ranges::count(names, "--ranks") > 0;
      return fmt::format("there is no option {}: {}", printable(name),
                         ranks ? "did you mean --ranks?" : "run with --help for what it takes");
    }
    if (!name.starts_with("--") || name.find('.') != std::string::npos) continue;
    const std::string best = option_like(name, names);
    if (!best.empty()) return fmt::format("there is no option {}: did you mean {}?", printable(name), best);
  }
  if (keeps_others_ || app_->remaining_size() == 0) return "";
  std::string words;
  for (const std::string& word : app_->remaining())
    words += (words.empty() ? "" : " ") + printable(word, 100);
  return fmt::format("'{}' was not expected; run with --help for what it takes", words);
}

std::optional<int> Parser::parse(const Invocation& call) {
  app_->allow_extras();  // unknown words are reported below, in their order
  std::vector<std::string> words(call.words.rbegin(),
                                 call.words.rend());  // CLI11 takes the words in reverse order
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
