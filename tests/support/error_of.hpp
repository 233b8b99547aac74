#pragma once
// What a refusal says.

#include <string>

#include "base/error.hpp"

namespace ztrain::test {

/// The message of the Error that the function throws; "no error" where it throws none.
template <class Function>
std::string error_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace ztrain::test
