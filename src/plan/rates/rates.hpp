#pragma once
// How fast a machine does what a step consists of, as its machine file says. Rates are those that a long step
// sees: of products at the clock that the power limit leaves, of collectives while others use the same links.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "program/ir/program.hpp"

namespace ztrain::plan {

/// Of matrix products, and of all else that is bound by arithmetic but attention.
struct ProductRates {
  double efficiency = 0.7;                           ///< share of the peak, of large products
  double fp8_efficiency = 0.6;                       ///< the same of the peak in 8 bits
  double fixed = 0;                                  ///< seconds of a kernel before and after its tiles
  std::int64_t tile_rows = 128, tile_columns = 256;  ///< elements of the output that one multiprocessor forms
  std::int64_t multiprocessors = 0;                  ///< that form tiles side by side; 0: tiles do not count
};

/// Of attention over rows of some length.
struct AttentionRates {
  double forward = 0.5, backward = 0.4;  ///< shares of the peak in 16 bits, of long rows and head_dim 128
  double half_length = 0;                ///< tokens of a row at which half of that is reached
  double narrow = 1;                     ///< factor of the rate for a head_dim of 64 or less
};

/// Of kernels that move bytes of the device's memory.
struct MemoryRates {
  double efficiency = 0.85;  ///< share of the nominal bandwidth
  double fixed = 0;          ///< seconds of a kernel besides
  double passes = 1;         ///< how often a peer's kernels, which are not fused, move what ours move once
};

/// Of collectives over the links within a node, or out of it: seconds = start + hops x hop + bytes / rate.
/// Rings of n ranks have n - 1 hops, sums of all elements twice as many, or those of two trees.
struct LinkRates {
  double share = 1;                         ///< of the nominal bandwidth, that large messages reach
  double start = 0, hop = 0, tree_hop = 0;  ///< seconds
};

/// Of nodes.
struct NodeRates {
  /// Seconds that one node runs on average until it ends a job: 419 failures in 54 days of 2,048 nodes (Llama
  /// Team, "The Llama 3 Herd of Models", 2024).
  double between_failures = 6300 * 3600.0;
  double write = 2e9;  ///< bytes/s of one node to the file system
  double watts = 0;    ///< most power that a node draws, with its fans; 0: not known
};

/// What a kernel or a collective does, as far as its time depends on it.
struct KernelWork {
  double bytes = 0;  ///< bytes read and written; of a communication, bytes sent
  double flops = 0;
  double hops = 0;  ///< other members of a collective's group
  bool operator==(const KernelWork&) const = default;
};

/// One kernel or collective as measured: seconds = fixed + bytes x per_byte + flops x per_flop + hops x
/// per_hop.
struct KernelRate {
  double fixed = 0, per_byte = 0, per_flop = 0, per_hop = 0;
  double seconds(const KernelWork& work) const {
    return fixed + work.bytes * per_byte + work.flops * per_flop + work.hops * per_hop;
  }
};

/// One product as measured.
struct ProductPoint {
  std::int64_t rows = 0, columns = 0, depth = 0;
  double flops_per_second = 0;
};

struct Rates {
  ProductRates products;
  AttentionRates attention;
  MemoryRates memory;
  LinkRates node{1, 0, 0, 0}, network{1, 0, 0, 0};
  NodeRates nodes;
  /// Rate of what computes while a collective uses the rank's links, relative to its rate alone.
  double beside_collectives = 1;
  /// Standard deviation of a rank's speed, relative. A step takes as long as the slowest of its ranks.
  double jitter = 0;
  /// Cores that the ranks of a node share, if ranks compute on them and have no queues beside: what a rank
  /// computes, copies and sends is one after the other. 0: ranks have devices.
  double cores = 0;
  /// By kernel_name(), and "other" for kernels that have no rate of their own. These go before all of the
  /// above.
  std::map<std::string, KernelRate> kernels;
  std::map<DType, std::vector<ProductPoint>> measured_products;  ///< by the type of the operands
  std::vector<std::string> cluster;                              ///< overrides of the deck's [cluster]
  std::vector<std::string> sources;  ///< files and presets from which these are, the last one first
};

/// A product C[rows, columns] += A[rows, depth] B[depth, columns], `groups` of them at once.
struct ProductShape {
  std::int64_t groups = 1, rows = 0, columns = 0;
  double depth = 0;
};

/// The shape of an op that forms a product: of its output and its flops.
ProductShape product_shape(const program::Program& program, const program::Op& op);

/// The share of the time of full waves of tiles for which the product's tiles use the multiprocessors: the
/// best of some sizes of tile. At most 1.
double tile_use(const ProductShape& shape, const ProductRates& rates);

/// The name of an op's rate in Rates::kernels: the collective, or the op's type, and the dtype of its first
/// floating-point operand, as in "rmsnorm.bf16". What only moves bytes has none: "all_gather".
std::string kernel_name(const program::Program& program, const program::Op& op);

/// Returns the rate as measured of an op: its own, or that of others. Null if the machine has none.
const KernelRate* kernel_rate(const Rates& rates, const program::Program& program, const program::Op& op);

/// The rate of the measured products that are nearest in shape, weighted by closeness. 0 where none is.
double measured_rate(const std::vector<ProductPoint>& points, const ProductShape& shape);

/// The mean of the largest of n draws from a normal distribution, in standard deviations; about
/// sqrt(2 ln n) (Blom, "Statistical Estimates and Transformed Beta-Variables", 1958).
double largest_of(double n);

/// The rates of a machine file, or of the preset with that name. `name` "": those of the initial values.
/// ranks_on_node: takes the section [ranks_on_node.N] whose N is nearest in ratio, if the file has any; 0:
/// takes none. Throws Error that names the file and the key.
Rates read_rates(const std::string& name, int ranks_on_node = 0);

/// Names of the presets that have rates.
std::vector<std::string> machine_presets();

}  // namespace ztrain::plan
