#pragma once
// What tests that run under mpirun share.

#include "runtime/session/session.hpp"

namespace ztrain::test {

/// The job's session, made by main.
const runtime::Session& session();

}  // namespace ztrain::test
