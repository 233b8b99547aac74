#pragma once
// cuBLASLt for tests, on streams of the late CUDA runtime: liblate_cublaslt.so has the functions of
// libcublasLt that the product calls. A product is formed in float64, rounded once, and as late as its stream
// has it. What the library's documentation forbids is refused, and failure() says why:
//
// * Types, and those of sums, factors and bias, are of a row of the documented table. 8-bit codes come with
//   scales, A transposed and B not, on multiples of 16 bytes in every direction; scales of rows on compute
//   capability 9.0 alone.
// * Matrices are the device's, whole, as far as their layouts say, and D overlaps nothing but C.
// * An algorithm serves the problem, and the alignments, that it was proposed for. The favourite needs every
// byte
//   of the workspace that was wanted, which is there, starts on a multiple of 256 bytes, and holds garbage
//   afterwards.

#include <cstddef>
#include <string>

namespace late_cublaslt {

struct Options {
  int capability = 90;  ///< of the device: 10 * major + minor
  /// What matrices of 16 bits must start on multiples of for there to be an algorithm.
  int alignment = 2;
};

/// Forgets failures and counts, too.
void configure(const Options& options);

/// Launched since.
int products();
/// Number of multiprocessors that the last launch was to run on; 0: all.
int multiprocessors();
/// Why the last call was refused; empty: none was.
std::string failure();

}  // namespace late_cublaslt
