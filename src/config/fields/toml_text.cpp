#include "config/fields/value.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/plain_text.hpp"

namespace ztrain::config {
namespace {

constexpr int most_parts = 64;     ///< parts of a dotted key
constexpr int most_brackets = 32;  ///< depth of nested arrays and tables

/// Scans TOML as its lexer does, as far as nesting is concerned.
class NestingScan {
 public:
  NestingScan(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  void run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"' || c == '\'')
        skip_string(c);
      else if (c == '#')
        at_ = std::min(text_.find('\n', at_), text_.size());
      else
        step(c);
    }
  }

 private:
  void step(char c) {
    ++at_;
    if (c == '\n') ++line_;
    if (c == '.') {
      require(++parts_ < most_parts, "parts of a key", most_parts);
      return;
    }
    if (c == '[' || c == '{')
      require(++brackets_ <= most_brackets, "brackets within each other", most_brackets);
    if (c == ']' || c == '}') brackets_ = std::max(brackets_ - 1, 0);
    if (std::string_view("\n=,[]{}").find(c) != std::string_view::npos) parts_ = 0;
  }

  /// Skips a string of one line, or of several with three quotes. The parser refuses one that is not closed.
  void skip_string(char quote) {
    const std::string three(3, quote);
    const bool long_one = text_.substr(at_, 3) == three;
    at_ += long_one ? 3 : 1;
    while (at_ < text_.size()) {
      if (long_one ? text_.substr(at_, 3) == three : text_[at_] == quote) break;
      if (text_[at_] == '\n') {
        if (!long_one) return;
        ++line_;
      }
      at_ += quote == '"' && text_[at_] == '\\' && text_.substr(at_ + 1, 1) != "\n" ? 2 : 1;
    }
    at_ += long_one ? 3 : 1;
    if (!long_one) return;
    for (int more = 0; more < 2 && at_ < text_.size() && text_[at_] == quote; ++more)
      ++at_;  // its last characters
  }

  void require(bool fine, const char* what, int limit) const {
    REQUIRE(fine, "{}:{}: not valid TOML: more than {} {}", name_, line_, limit, what);
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
  int line_ = 1, parts_ = 0, brackets_ = 0;
};

}  // namespace

toml::table parse_toml(std::string_view text, const std::string& name) {
  NestingScan(text, name).run();
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    fail("{}:{}: not valid TOML: {}", name, error.source().begin.line, printable(error.description(), 200));
  }
}

}  // namespace ztrain::config
