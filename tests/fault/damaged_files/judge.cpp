#include "judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <regex>
#include <string_view>

#include "config/fields/fields.hpp"

namespace ztrain::damaged_files {
namespace {

constexpr std::ptrdiff_t most_lines = 20;
constexpr std::size_t most_bytes = 4000;  ///< twenty lines of 200 characters

/// Of libraries and of the language: nobody can act on them.
constexpr std::array<std::string_view, 22> foreign_words{"std::",
                                                         "bad_alloc",
                                                         "json.exception",
                                                         "type_error",
                                                         "HDF5-DIAG",
                                                         "filesystem error",
                                                         "basic_string",
                                                         "vector::",
                                                         "map::at",
                                                         "what():",
                                                         "terminate called",
                                                         "stoi",
                                                         "stol",
                                                         "stod",
                                                         "Assertion",
                                                         "unordered_map::",
                                                         "bad_variant",
                                                         "bad_optional",
                                                         "cannot create std",
                                                         "regex_error",
                                                         "parse_error",
                                                         "Segmentation"};

std::string foreign_word(const std::string& text) {
  for (const std::string_view word : foreign_words)
    if (text.find(word) != std::string::npos) return fmt::format("prints '{}'", word);
  return "";
}

/// Whether the bytes are UTF-8 of printable characters and ends of lines.
bool printable(const std::string& text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t more = byte < 0x80 ? 0 : byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : byte >= 0xc2 ? 1 : 4;
    if (more == 4 || byte > 0xf4 || i + more >= text.size() || byte == 0x7f || (byte < 0x20 && byte != '\n'))
      return false;
    for (std::size_t k = 1; k <= more; ++k)
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return false;
    if (byte == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0) return false;  // C1 controls
    i += more + 1;
  }
  return true;
}

/// The text with names and numbers taken out: the same for messages that come from one place.
std::string skeleton(const std::string& text) {
  static const std::regex quoted(R"('[^'\n]*'|"[^"\n]*"|[^ :(]*[/.][^ :]*)"), number(R"([-0-9.e+]*\d)");
  const std::string plain = std::regex_replace(text.substr(0, 400), quoted, "_");
  return std::regex_replace(plain, number, "#").substr(0, 90);
}

bool names_something(const std::string& text, const std::filesystem::path& folder, const Words& words) {
  for (const std::string& word : words)
    if (word.size() > 4 && text.find(word) != std::string::npos) return true;
  if (text.find(folder.filename().string()) != std::string::npos) return true;
  if (text.find("command line") != std::string::npos || text.find("--") != std::string::npos) return true;
  for (const auto& field : config::fields())
    if (text.find(field.key) != std::string::npos) return true;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (text.find(entry.path().filename().string()) != std::string::npos) return true;
  return false;
}

std::string refusal(const std::string& text, const std::filesystem::path& folder, const Words& words) {
  if (text.empty()) return "ends without a word";
  if (const std::string word = foreign_word(text); !word.empty()) return word;
  if (!printable(text)) return "prints bytes that are no printable text";
  if (std::ranges::count(text, '\n') > most_lines) return "prints more than 20 lines";
  if (text.size() > most_bytes) return "prints more than 4000 characters";
  if (!names_something(text, folder, words)) return "names neither a key nor a file";
  return "";
}

/// Numbers that a reader would take for a mistake: not finite, or counts below nothing.
std::string nonsense_number(const std::string& text) {
  static const std::regex none(
      R"((^|[ =(\[])-?(nan|inf)\b|(^|[ (])-\d+ (tokens|steps|rows|sequences|documents|tensors|ranks)|-\d{5,}|-[\d.]+ ?([KMGT]i?B|B|GB)\b)");
  std::smatch found;
  return std::regex_search(text, found, none) ? fmt::format("accepts, and prints '{}'", found.str()) : "";
}

}  // namespace

std::string wrong_in_refusal(const std::string& text, const std::filesystem::path& folder,
                             const Words& words) {
  const std::string wrong = refusal(text, folder, words);
  return wrong.empty() ? "" : fmt::format("{} | {}", wrong, skeleton(text));
}

std::string wrong_in(const Outcome& outcome, const std::filesystem::path& folder) {
  if (outcome.foreign) return "throws what is not its own: " + outcome.message.substr(0, 60);
  if (outcome.accepted) {
    if (const std::string word = foreign_word(outcome.out + outcome.err); !word.empty()) return word;
    if (!printable(outcome.err)) return "prints bytes that are no printable text";
    return nonsense_number(outcome.out);
  }
  return wrong_in_refusal(outcome.err + outcome.message, folder, outcome.words);
}

}  // namespace ztrain::damaged_files
