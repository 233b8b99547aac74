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
#include <string>
#include <string_view>

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

}  // namespace ztrain::kernels
