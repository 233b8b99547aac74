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

/// Reaches the member of a deck that a key stands for; the alternative is the key's type.
using Access =
    std::variant<std::string& (*)(Deck&), std::int64_t& (*)(Deck&), double& (*)(Deck&), bool& (*)(Deck&),
                 DType& (*)(Deck&), std::vector<std::string>& (*)(Deck&), std::vector<double>& (*)(Deck&),
                 Pair (*)(Deck&), std::vector<ParameterGroup>& (*)(Deck&)>;

/// The largest count that every reader of it keeps exactly: plans compute with doubles, and so does JSON.
constexpr double most_count = 0x1p53;

/// As (spelling, value); case does not matter.
using Spellings = std::vector<std::pair<std::string, std::string>>;

/// What values a key may take, beyond its type. Numbers have both bounds, so that whoever computes with them
/// need not fear for the range of an integer; numbers that are not whole besides fit fp32 (fits_fp32).
struct Legal {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool open_least = false;             ///< least itself is not legal
  bool open_most = false;              ///< most itself is not legal
  bool minus_one = false;              ///< -1 is legal besides
  std::int64_t multiple = 1;           ///< of which whole numbers are multiples
  std::vector<std::string> choices{};  ///< empty: any; case does not matter
  Spellings aliases{};                 ///< legal too
  /// What other programs write for a value: understood, but not documented as ztrain's own. true and false
  /// may be TOML's booleans.
  Spellings understood{};
  /// What other programs write for something close: not legal, but then that value is proposed.
  Spellings hints{};
  /// Above 0: besides the choices, whole numbers from this on, up to most, are legal, and kept as text.
  std::int64_t or_from = 0;
  /// Not empty: besides the choices, names of files that end so are legal.
  std::string or_ending{};
};

/// Whether a key's strings are paths of what a run reads or of what it writes: `${VAR}` is expanded in both.
enum class PathKind : std::uint8_t { none, read, written };

struct Field {
  std::string key;  ///< "section.member"
  Access access;
  std::string standard;  ///< the default, as TOML; empty: the key must be given
  std::string unit;      ///< empty: none
  Legal legal;
  std::string doc;              ///< sentences
  bool free_on_resume = false;  ///< may differ from what the checkpoint was written with
  bool numeric = false;         ///< shapes the numbers that are computed: part of the deck's hash
  PathKind path = PathKind::none;
  std::string example{};  ///< as TOML, for the template, where the default would not make a usable deck

  std::string section() const { return key.substr(0, key.find('.')); }
  std::string member() const { return key.substr(key.find('.') + 1); }
};

/// All fields, in the order of documentation; fields of one section are neighbours.
const std::vector<Field>& fields();

/// The field of this key, or null.
const Field* find_field(std::string_view key);

/// Every key. Every section, in table order.
std::vector<std::string> field_keys();
std::vector<std::string> section_names();
/// A sentence or two on a section.
std::string section_doc(std::string_view section);

/// "string", "integer", "number", "boolean", "dtype", "list of strings", "list of numbers",
/// "two numbers", "list of tables"
std::string type_name(const Field& field);
/// "an integer, 1 or more", "one of none, full", ...
std::string legal_text(const Field& field);

}  // namespace ztrain::config
