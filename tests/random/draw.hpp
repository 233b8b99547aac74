#pragma once
// Random decks: a seed gives a model, its data and its optimizer, and a way to place them on some ranks.

#include <cstdint>
#include <string>
#include <vector>

namespace ztrain::random_decks {

/// Words of the command line, "--key=value".
using Words = std::vector<std::string>;

struct Sample {
  std::uint64_t seed = 0;
  int ranks = 1;
  Words numerics;   ///< of the model, its data and its optimizer
  Words placement;  ///< the mesh, and all that changes no number but by rounding

  /// All words, with `data` for DATA and `output` for OUTPUT.
  Words words(const std::string& data, const std::string& output) const;
  /// Those that the run on one rank has.
  Words of_one_rank(const std::string& data) const;
  /// Whether sums of gradients or momenta are rounded, as often and where the mesh says.
  bool rounds_sums() const;
  /// The words without those that change no bit on this mesh.
  Words plain_on_this_mesh(const std::string& data) const;
};

/// The deck that the words of a sample come behind.
std::string base_deck(const std::string& data);

/// The sample of a seed, which depends on its own seed alone: a new row of the table changes no other key.
Sample draw(std::uint64_t seed);

/// The same numerics, placed in another way on this number of ranks.
Sample placed_anew(const Sample& sample, std::uint64_t seed, int ranks);

/// Seed, ranks, numerics, "|" and placement, with tabs between all words: a line that runs the sample again.
std::string text_of(const Sample& sample);

/// A line that text_of() made.
Sample sample_of(const std::string& text);

}  // namespace ztrain::random_decks
