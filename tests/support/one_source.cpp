#include "tests/support/one_source.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace ztrain::test {
namespace {

std::string_view name_of_file(std::string_view path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

/// The names of the tests in files of that name, as --gtest_filter takes them.
std::string tests_in(std::string_view file) {
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  std::string names;
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      if (name_of_file(test.file()) == file) names += std::string(suite.name()) + '.' + test.name() + ':';
    }
  }
  return names;
}

}  // namespace

void run_only_one_source(int argc, char** argv) {
  constexpr std::string_view option = "--source=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(option)) continue;
    const std::string_view file = name_of_file(argument.substr(option.size()));
    const std::string names = tests_in(file);
    if (names.empty()) throw std::runtime_error("no test linked here stands in " + std::string(file));
    if (GTEST_FLAG_GET(filter) == "*") GTEST_FLAG_SET(filter, names);
  }
}

}  // namespace ztrain::test
