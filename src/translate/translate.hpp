#pragma once
// Translates configurations of other programs into a deck, in which each of their names has a line.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "translate/conversions.hpp"
#include "translate/programs.hpp"

namespace ztrain::translate {

struct Request {
  std::vector<std::string> files;
  std::string from{};                    ///< name of the program; "": it is recognised
  int ranks = 0;                         ///< 0: as the files say
  std::vector<std::string> overrides{};  ///< "--section.key=value"
};

struct Source {
  std::string file;
  const Program* program;
};

/// One setting and what became of it.
struct Line {
  Fate fate;
  std::string name, value, where;
  std::vector<std::pair<std::string, std::string>>
      keys{};  ///< keys of the deck, or parts, and what it gave them
  std::string note{};
};

/// A key of the deck.
struct Held {
  std::string toml;
  std::size_t line;  ///< index of the setting that counts
};

struct Translation {
  std::vector<Source> sources;
  std::vector<Line> lines;
  std::map<std::string, Held> keys;
  std::map<std::string, std::string> remarks;  ///< by key: what is to be given, or how it was computed
};

/// Throws Error for what cannot be read, files of no known program and overrides of keys that a deck has not.
Translation translate(const Request& request);

/// Returns the key of the deck that a part belongs to; all else as it is.
std::string whole_key(const std::string& key);

/// Returns a note without the advice to leave the key out of a deck.
std::string without_advice(std::string_view note);

/// Returns the deck.
std::string deck_text(const Translation& translation);

/// Returns how many names need the user's attention, such as "1 name to be given, 4 without a counterpart";
/// "" if none does.
std::string counts_text(const Translation& translation);

/// Returns the tables of docs/coming-from.md: the names of each program, their keys, and how they differ.
std::string names_markdown();

}  // namespace ztrain::translate
