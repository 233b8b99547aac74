#pragma once
// Writes the likeliest words of a model, for distillation: each rank those of its own tokens.

#include <span>
#include <string>
#include <vector>

#include "files/likelihoods.hpp"
#include "job/evaluation.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::evaluate {

class LikelihoodWriter {
 public:
  /// Collective. Makes `path`.tmp. Throws AgreedError if a rank cannot open the file.
  LikelihoodWriter(const runtime::Session& session, std::string path, const LikelihoodHeader& header);

  /// Writes the words of tokens at these places, if this rank tells them. A failure is kept for finish(),
  /// because the other ranks wait for this one.
  void write(std::span<const std::int64_t> places, const job::LikeliestWords& told);

  /// Collective. Gives the file its name. Throws AgreedError if a rank could not write.
  void finish();

 private:
  const runtime::Session& session_;
  std::string path_, unfinished_, failure_;
  std::vector<LikelihoodFile> file_;  ///< one, once rank 0 has made it
  std::vector<PosixFile> to_;
};

}  // namespace ztrain::evaluate
