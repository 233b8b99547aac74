#pragma once
// Which of a vendor library's algorithms a matrix product uses: measured once per kind of GPU and library,
// kept in a file, and the same from then on, so that a resumed run sums as the first one did. Plain host
// code.

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/dtype.hpp"
#include "base/philox.hpp"

namespace ztrain::kernels {

/// A library's own description of an algorithm, meaningful to the same version of it (cublasLtMatmulAlgo_t).
using AlgorithmBytes = std::array<std::uint8_t, 64>;

struct Algorithm {
  AlgorithmBytes bytes{};
  double microseconds = 0;  ///< of one launch; 0: taken without measuring
  bool measured() const { return microseconds > 0; }
};

/// Where an algorithm is valid, and fast.
struct AlgorithmHome {
  std::string device;        ///< "NVIDIA H100 80GB HBM3"
  std::int64_t library = 0;  ///< versions, as the library and the driver number them
  std::int64_t driver = 0;
  auto operator<=>(const AlgorithmHome&) const = default;
};

/// Algorithms by what they compute ("bf16 -> bf16 m 4096 ..."). What has been measured stays as it is. Holds
/// those of other homes too, and passes them on.
class AlgorithmTable {
 public:
  explicit AlgorithmTable(AlgorithmHome home) : home_(std::move(home)) {}

  const AlgorithmHome& home() const { return home_; }
  std::optional<Algorithm> find(const std::string& key) const;
  void record(const std::string& key, const Algorithm& algorithm);

  /// Takes in what another table's to_text gave, other homes included; entries that are here already stay,
  /// but for those that were not measured. Text that is none, or of another format, or broken entries are
  /// left out.
  void merge(std::string_view text);
  std::string to_text() const;
  std::size_t size() const;  ///< entries of this home
  void forget_unmeasured();

 private:
  using Entries = std::map<std::string, Algorithm>;
  static void add(Entries& entries, const std::string& key, const Algorithm& algorithm);
  AlgorithmHome home_;
  std::map<AlgorithmHome, Entries> entries_;
};

/// ztrain/algorithms.json in $XDG_CACHE_HOME or ~/.cache; empty where neither variable is set.
std::string default_algorithms_file();

/// The file's text; empty where it cannot be read.
std::string read_algorithms(const std::string& path);

/// Adds a table to a file, which is made with its folders if need be: what the file says already stays, and
/// goes into the table, so that who reads the file later computes as who has the table. What was not measured
/// stays out of it. It is replaced at once, so that readers never see half of it. Throws Error naming the
/// file.
void save_algorithms(const std::string& path, AlgorithmTable& table);

struct Candidate {
  AlgorithmBytes bytes{};
  std::int64_t workspace = 0;  ///< bytes that it needs
};

/// Runs and measures the algorithms that a library proposes for a product.
class CandidateTimer {
 public:
  virtual ~CandidateTimer() = default;
  /// Measures once: microseconds of one launch; nothing where it cannot be launched.
  virtual std::optional<double> microseconds(const Candidate& candidate) = 0;
};

/// Measurements of each candidate, the candidates by turns; the medians are compared.
inline constexpr int candidate_rounds = 5;

/// Returns, of those that fit the workspace and can be launched, the one of the least median; if others are
/// as good within measuring (2%), the one that the library proposed first. Those that the first round shows
/// to take twice as long as another are not measured again. Returns nothing if there is none.
std::optional<Algorithm> fastest(std::span<const Candidate> candidates, std::int64_t workspace,
                                 CandidateTimer& timer);

/// Count of the numbers that products are measured on, which are repeated through a matrix. It is a prime, so
/// that no stride of a power of two makes rows equal. A GPU's power, and with it its clock, follows the bits
/// that change from one number to the next: on equal numbers the wrong algorithm may win.
inline constexpr std::size_t tuning_period = 262139;

/// Returns numbers evenly drawn from both signs. They are small enough that thousands of products may be
/// added up in fp16; 8-bit codes, which have scales and are never added up in their own type, from most of
/// their range.
template <class T>
std::vector<T> tuning_values(std::uint64_t stream) {
  constexpr double largest = sizeof(T) == 1 ? 240 : 0.125;
  std::vector<T> values(tuning_period);
  for (std::size_t i = 0; i < values.size(); i += 4) {
    const PhiloxBlock drawn = philox(0x7475'6e69'6e67, stream, i / 4);
    for (std::size_t j = 0; j < 4 && i + j < values.size(); ++j)
      values[i + j] =
          static_cast<T>(static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(
              largest * (2 * uniform(drawn[j]) - 1)));
  }
  return values;
}

/// Scale of all 8-bit codes. With it products of codes are as small as the others.
inline constexpr float tuning_scale = 0x1p-11f;

}  // namespace ztrain::kernels
