#pragma once
// Internal to config. Gathers what is wrong with a deck, so that a user hears of all of it at once.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace ztrain::config {

class Faults {
 public:
  /// Adds a message. Messages are sorted by their line in the deck; 0: none.
  void add(std::string message, std::int64_t line = 0);

  /// Runs fn. Adds the message of an Error that it throws, and then returns false.
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

  /// Does the same for a check of several keys. Drops a message that may follow from earlier ones: it names a
  /// key that they name, or one of a section that is not trusted.
  template <class Function>
  void attempt_derived(Function&& fn) {
    try {
      fn();
    } catch (const Error& error) {
      if (!may_follow(error.what())) add(error.what());
    }
  }

  /// Notes that values of this section may be wrong because of what was found, such as a preset that does not
  /// exist.
  void distrust(std::string section) { distrusted_.push_back(std::move(section)); }

  std::size_t size() const { return all_.size(); }
  /// Throws one Error with all messages, each on lines of its own; returns if there are none.
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
