#pragma once
// Internal to config: what is wrong with a deck, gathered so that a user hears of all of it at once.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace ztrain::config {

class Faults {
 public:
  /// Adds a message. line: of the deck, by which messages are sorted; 0: it has none.
  void add(std::string message, std::int64_t line = 0);

  /// Runs fn, and adds the message of the Error that it throws; false where it does.
  template <class Function>
  bool attempt(Function&& fn, std::int64_t line = 0) {
    try {
      fn();
      return true;
    } catch (const Error& error) {
      add(error.what(), line);
      return false;
    }
  }

  /// The same for a check of several keys. A message that may follow from earlier ones is dropped: it names a
  /// key that they name, or one of a section that is not trusted.
  template <class Function>
  void attempt_derived(Function&& fn) {
    try {
      fn();
    } catch (const Error& error) {
      if (!may_follow(error.what())) add(error.what());
    }
  }

  /// Values of this section may be wrong because of what was found: its preset, say, does not exist.
  void distrust(std::string section) { distrusted_.push_back(std::move(section)); }

  std::size_t size() const { return all_.size(); }
  /// Throws one Error with all messages, at most a dozen; returns where there are none.
  void raise() const;

 private:
  struct Fault {
    std::string message;
    std::int64_t line;
  };
  bool may_follow(std::string_view message) const;

  std::vector<Fault> all_;
  std::vector<std::string> distrusted_;
};

}  // namespace ztrain::config
