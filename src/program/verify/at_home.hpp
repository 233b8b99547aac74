#pragma once
// What offload does to a Program, undone for those that follow what is kept from one Program to the next.

#include <optional>

#include "program/ir/program.hpp"

namespace ztrain::program {

/// The Program as if ops used what is kept (Tensor::persistent) where it is at home: without the copies to
/// and from tensors of other tiers, whose uses become uses of what they hold. Only where that is the same:
/// what is kept is not written elsewhere while it is held, not read elsewhere once what holds it was changed,
/// and all that was changed is copied back; where it never is, throws Error. Everything else stays as it is,
/// and ops keep their places. Nothing where the Program has no such copies.
std::optional<Program> at_home(const Program& program);

}  // namespace ztrain::program
