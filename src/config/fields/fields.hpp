#pragma once
// The one table of deck fields. Parsing, validation, the commented template, docs/inputs.md, the resolved
// deck, the hash and the rules of resuming all walk it. A new key is one member in deck.hpp and one row in
// the fields_*.cpp of its section.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.hpp"
#include "config/deck.hpp"

namespace ztrain::config {

/// Two numbers that one key holds as an array.
struct Pair {
  double& first;
  double& second;
};

/// Reaches the member of a deck for which a key stands; the alternative is the key's type.
using Access =
    std::variant<std::string& (*)(Deck&), std::int64_t& (*)(Deck&), double& (*)(Deck&), bool& (*)(Deck&),
                 DType& (*)(Deck&), std::vector<std::string>& (*)(Deck&), std::vector<double>& (*)(Deck&),
                 Pair (*)(Deck&), std::vector<ParameterGroup>& (*)(Deck&)>;

/// The largest count that all readers keep exactly: plans compute with doubles, and so does JSON.
constexpr double most_count = 0x1p53;

/// Pairs of a spelling and its value; case does not matter.
using Spellings = std::vector<std::pair<std::string, std::string>>;

/// Values that a key may take, beyond its type. Numbers have both bounds, so that code that computes with
/// them need not fear the range of an integer. Other numbers than whole ones also fit fp32 (fits_fp32).
struct Legal {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool open_least = false;             ///< whether least itself is illegal
  bool open_most = false;              ///< whether most itself is illegal
  bool minus_one = false;              ///< whether -1 is legal too
  std::int64_t multiple = 1;           ///< whole numbers are multiples of this
  bool whole_from_one = false;         ///< whether numbers of 1 and more are whole, and others shares
  std::vector<std::string> choices{};  ///< legal words, in any case; empty: any text
  Spellings aliases{};                 ///< spellings that are legal too
  /// Spellings of other programs that are understood but not documented. true and false may be TOML's
  /// booleans.
  Spellings understood{};
  /// Spellings of other programs for something similar. They are not legal; the message proposes the value.
  Spellings hints{};
  /// If above 0: whole numbers from this on, up to most, are legal besides the choices, and kept as text.
  std::int64_t or_from = 0;
  /// If not empty: names of files with this ending are legal besides the choices.
  std::string or_ending{};
};

/// Whether a key's value may differ from the checkpoint's when a run goes on: never, if checkpoint.override
/// names it, or always.
enum class OnResume : std::uint8_t { never, on_request, free };

/// Whether a key's strings are paths that a run reads, or that it writes: `${VAR}` is expanded in both.
enum class PathKind : std::uint8_t { none, read, written };

struct Field {
  std::string key;  ///< "section.member"
  Access access;
  std::string standard;  ///< the default, as TOML; empty: the key must be given
  std::string unit;      ///< empty: none
  Legal legal;
  std::string doc;  ///< sentences
  OnResume on_resume = OnResume::never;
  bool numeric = false;  ///< whether it shapes the computed numbers, and so is part of the deck's hash
  PathKind path = PathKind::none;
  /// Key of a kind of codes, unless empty: with codes this key decides which values are rounded to them, so
  /// that one of OnResume::free needs checkpoint.override too.
  std::string_view rounds_with{};
  std::string_view only_on{};  ///< "CPU" or "GPU" if the key has no effect on others
  std::string example{};  ///< value for the template, as TOML, if the default would not make a usable deck

  std::string section() const { return key.substr(0, key.find('.')); }
  std::string member() const { return key.substr(key.find('.') + 1); }
};

/// Returns all fields, in the order of documentation; fields of one section are neighbours.
const std::vector<Field>& fields();

/// Returns the field of this key, or null.
const Field* find_field(std::string_view key);

/// Return every key, and every section, in table order.
std::vector<std::string> field_keys();
std::vector<std::string> section_names();
/// Returns a sentence or two on a section.
std::string section_doc(std::string_view section);

/// Returns "string", "integer", "number", "boolean", "dtype", "list of strings", "list of numbers", "two
/// numbers" or "list of tables".
std::string type_name(const Field& field);
/// Returns text such as "an integer, 1 or more" or "one of none, full".
std::string legal_text(const Field& field);

}  // namespace ztrain::config
