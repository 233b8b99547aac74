#include "tests/random/draw.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/philox.hpp"
#include "tests/random/rows.hpp"

namespace ztrain::random_decks {
namespace {

constexpr const char* base = R"([run]
steps = 3
[data]
train = ["DATA/text.txt"]
validation = ["DATA/held_out.txt"]
sequence = 32
[model]
hidden_size = 32
intermediate_size = 80
num_hidden_layers = 4
num_attention_heads = 4
num_key_value_heads = 2
vocab_size = 257
[evaluation]
interval = 2
batches = 1000
[checkpoint]
interval = 2
keep = 0
resume = "auto"
)";

constexpr std::array axes{"pipeline", "replicate", "shard", "context", "tensor"};

/// Draws that are named, so that each depends on the seed and its own name alone.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}

  double share(std::string_view name, std::uint64_t number = 0) const {
    return uniform(philox(seed_, hash_text(name), number)[0]);
  }
  std::size_t below(std::size_t count, std::string_view name, std::uint64_t number = 0) const {
    return philox(seed_, hash_text(name), number)[1] % count;
  }
  template <class List>
  const auto& one_of(const List& list, std::string_view name, std::uint64_t number = 0) const {
    return list[below(std::size(list), name, number)];
  }

 private:
  std::uint64_t seed_;
};

/// Whether a word gives a key, or is "--key=value" of a "key=value".
bool is_of(std::string_view word, std::string_view key) {
  word.remove_prefix(2);
  return word == key || (word.starts_with(key) && word[key.size()] == '=');
}

bool has(const Words& words, std::string_view key) {
  return std::ranges::any_of(words, [&](const std::string& word) { return is_of(word, key); });
}

bool has_any(const Words& words, std::string_view alternatives) {
  for (std::size_t begin = 0; begin < alternatives.size();) {
    const std::size_t end = std::min(alternatives.find('|', begin), alternatives.size());
    if (has(words, alternatives.substr(begin, end - begin))) return true;
    begin = end + 1;
  }
  return false;
}

void draw_rows(const std::vector<Row>& rows, const Dice& dice, Words& words) {
  for (const Row& row : rows) {
    if (!row.needs.empty() && !has_any(words, row.needs)) continue;
    if (dice.share(row.key) >= row.share) continue;
    words.push_back(fmt::format("--{}={}", row.key, dice.one_of(row.values, row.key)));
  }
}

int global_of(const Words& numerics) {
  for (const std::string& word : numerics)
    if (word.starts_with("--batch.global=")) return std::stoi(word.substr(word.find('=') + 1));
  fail("a sample without batch.global");
}

/// Degrees whose product is the number of ranks, by axis.
std::array<int, axes.size()> mesh_of(int ranks, const Dice& dice, std::uint64_t attempt) {
  // Axes that do more are drawn more often.
  constexpr std::array weighted{0, 0, 0, 1, 2, 2, 3, 3, 4, 4, 4};
  std::array<int, axes.size()> degrees{1, 1, 1, 1, 1};
  std::uint64_t factor = 0;
  for (int left = ranks, prime = 2; left > 1;) {
    if (left % prime != 0) {
      ++prime;
      continue;
    }
    degrees[static_cast<std::size_t>(dice.one_of(weighted, "mesh", attempt * 8 + factor++))] *= prime;
    left /= prime;
  }
  return degrees;
}

/// Whether losses are means over the tokens of a micro-batch, and so others if it has other sequences.
bool counts_micro_batches(const Words& numerics) {
  return has(numerics, "model.num_experts") &&
         (!has(numerics, "experts.balance=none") || has(numerics, "experts.z_loss"));
}

/// Whether the numbers are those of codes of whole parameters, which a cut of layers would divide otherwise
/// and parameters that stay whole do not have.
bool gathers_codes(const Words& numerics) {
  return has(numerics, "sharding.gather_codes");
}

/// Keys of placement that decide which numbers are codes, so that a resume refuses another value.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> keys_that_decide_codes{
    {{"sharding.gather_codes", "sharding.persistence_threshold"},
     {"sharding.reduce_codes", "sharding.reshard_after_forward"}}};

/// The mesh and batch.micro, whose product with the accumulation is batch.global.
void draw_mesh(Sample& sample, const Dice& dice) {
  const int global = global_of(sample.numerics);
  for (std::uint64_t attempt = 0;; ++attempt) {
    const auto degrees = mesh_of(sample.ranks, dice, attempt);
    const int parts = degrees[1] * degrees[2];
    if (global % parts != 0 || (gathers_codes(sample.numerics) && degrees.back() > 1)) continue;
    std::vector<int> micros;
    for (int micro = 1; micro <= (counts_micro_batches(sample.numerics) ? 1 : 4); ++micro)
      if (global / parts % micro == 0) micros.push_back(micro);
    for (std::size_t axis = 0; axis < axes.size(); ++axis)
      if (degrees[axis] > 1 || axis == 2)
        sample.placement.push_back(fmt::format("--mesh.{}={}", axes[axis], degrees[axis]));
    if (has(sample.numerics, "model.num_experts") && degrees[2] % 2 == 0 && dice.share("mesh.expert") < 0.7)
      sample.placement.push_back(fmt::format("--mesh.expert={}", degrees[2] % 4 == 0 ? 4 : 2));
    sample.placement.push_back(fmt::format("--batch.micro={}", dice.one_of(micros, "micro")));
    return;
  }
}

void draw_placement(Sample& sample, const Dice& dice) {
  draw_mesh(sample, dice);
  Words all = sample.numerics;
  all.insert(all.end(), sample.placement.begin(), sample.placement.end());
  const std::size_t before = all.size();
  draw_rows(placement(), dice, all);
  for (const auto& [codes, decides] : keys_that_decide_codes)
    if (has(sample.numerics, codes))
      std::erase_if(all, [&](const auto& word) { return is_of(word, decides); });
  sample.placement.insert(sample.placement.end(), all.begin() + static_cast<std::ptrdiff_t>(before),
                          all.end());
}

void replace(std::string& text, std::string_view from, const std::string& to) {
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

Words with_folders(Words words, const std::string& data, const std::string& output) {
  for (std::string& word : words) {
    if (word == "--data.train=DATA/mixture") word = R"(--data.train=["DATA/text.txt", "DATA/some.txt"])";
    replace(word, "DATA", data);
    replace(word, "OUTPUT", output);
  }
  return words;
}

}  // namespace

Words Sample::words(const std::string& data, const std::string& output) const {
  Words all = numerics;
  all.insert(all.end(), placement.begin(), placement.end());
  return with_folders(std::move(all), data, output);
}

Words Sample::of_one_rank(const std::string& data) const {
  return with_folders(numerics, data, "");
}

bool Sample::rounds_sums() const {
  return has_any(numerics, "sharding.reduce_codes|optimizer.name=onebit_adam");
}

Words Sample::plain_on_this_mesh(const std::string& data) const {
  // The copies of a unit's shard deal out what they round of its sum.
  constexpr std::array decide{"mesh.",           "batch.",        "pipeline.",
                              "context.",        "experts.",      "tensor.",
                              "recompute.tiles", "sharding.unit", "sharding.gradient_accumulation"};
  Words words = numerics;
  for (const std::string& word : placement)
    if (std::ranges::any_of(decide,
                            [&](const char* key) { return word.starts_with(std::string("--") + key); }))
      words.push_back(word);
  const bool late = has_any(placement, "sharding.strategy=NO_SHARD|sharding.strategy=zero1");
  if (!has(placement, "sharding.gradient_accumulation"))
    words.push_back(fmt::format("--sharding.gradient_accumulation={}", late ? "no_sync" : "reduce"));
  return with_folders(std::move(words), data, "");
}

std::string base_deck(const std::string& data) {
  std::string text = base;
  replace(text, "DATA", data);
  return text;
}

Sample draw(std::uint64_t seed) {
  const Dice dice(seed);
  constexpr std::array ranks{1, 2, 2, 2, 3, 4, 4, 4, 4, 6, 8, 8};
  constexpr std::array globals{4, 6, 8, 12, 16, 24};
  Sample sample;
  sample.seed = seed;
  sample.ranks = dice.one_of(ranks, "ranks");
  sample.numerics.push_back(fmt::format("--batch.global={}", dice.one_of(globals, "batch.global")));
  draw_rows(numerics(), dice, sample.numerics);
  draw_placement(sample, dice);
  return sample;
}

Sample placed_anew(const Sample& sample, std::uint64_t seed, int ranks) {
  Sample other{seed, ranks, sample.numerics, {}};
  draw_placement(other, Dice(seed));
  return other;
}

std::string text_of(const Sample& sample) {
  return fmt::format("{}\t{}\t{}\t|\t{}", sample.seed, sample.ranks, fmt::join(sample.numerics, "\t"),
                     fmt::join(sample.placement, "\t"));
}

Sample sample_of(const std::string& text) {
  Words words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\t', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  const auto bar = std::ranges::find(words, "|");
  REQUIRE(words.size() > 2 && bar != words.end(), "no line of a sample: {}", text);
  return {std::stoull(words[0]), std::stoi(words[1]), {words.begin() + 2, bar}, {bar + 1, words.end()}};
}

}  // namespace ztrain::random_decks
