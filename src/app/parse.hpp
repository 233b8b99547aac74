#pragma once
// Parsing of a subcommand's words with CLI11.

#include <CLI/CLI.hpp>
#include <optional>

#include "app/commands.hpp"

namespace ztrain::app {

/// Nothing when the words were understood; otherwise the exit code, with help or the error printed by rank 0.
std::optional<int> parse(CLI::App& app, const Invocation& call);

}  // namespace ztrain::app
