// Mutates decks, models, token files and checkpoints, gives them to the program's commands in this process,
// and holds what comes of it against what a user may see: no crash, no hang, no words of libraries, no long
// output, and nothing accepted that a reader would call nonsense.
//
//   fault_damaged_files --cases=300              seeds 1 to 300; ends with 1 where something is wrong
//   fault_damaged_files --seed=17                one case, aloud; --keep leaves its files
//   fault_damaged_files --subject=tokens ...     deck, model, tokens or checkpoint alone
//   fault_damaged_files --first=1000 --cases=50  seeds 1000 to 1049

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string_view>

#include "base/error.hpp"
#include "runner.hpp"

namespace {

using namespace ztrain;

struct Arguments {
  damaged_files::Plan plan;
  bool keep = false;
};

Arguments parse(int argc, char** argv) {
  Arguments a;
  std::uint64_t cases = 300;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string name = word.substr(0, word.find('=')),
                      value = word.substr(std::min(word.size(), name.size() + 1));
    if (name == "--cases")
      cases = std::stoull(value);
    else if (name == "--first")
      a.plan.first = std::stoull(value);
    else if (name == "--seed")
      a.plan.first = std::stoull(value), cases = 1, a.plan.aloud = true;
    else if (name == "--subject")
      a.plan.subject = value;
    else if (name == "--keep")
      a.keep = true;
    else
      fail("'{}' is no option; see the top of main.cpp", word);
  }
  a.plan.last = a.plan.first + cases - 1;
  return a;
}

/// What the program writes elsewhere goes into the folder too, and jobs of one process need no network.
void prepare_environment(const std::filesystem::path& folder) {
  for (const auto& [name, value] : {std::pair<const char*, std::string>{"OMP_NUM_THREADS", "1"},
                                    {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                    {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                    {"OMPI_MCA_btl", "self"},
                                    {"OMPI_MCA_ess_singleton_isolated", "1"},
                                    {"OMPI_MCA_orte_tmpdir_base", folder.string()},
                                    {"XDG_CACHE_HOME", (folder / "cache").string()},
                                    {"HOME", folder.string()}})
    ::setenv(name, value.c_str(), 1);
}

void print(const Arguments& a, const damaged_files::Report& r) {
  if (a.plan.aloud) {
    std::ifstream said(a.plan.folder / "said");
    fmt::print("{}\n", std::string(std::istreambuf_iterator<char>(said), {}));
  }
  fmt::print("{} cases: {} commands accepted, {} refused; the slowest case is seed {} with {:.2f} s\n",
             a.plan.last - a.plan.first + 1, r.accepted, r.refused, r.slowest_seed, r.slowest);
  for (const auto& [cause, c] : r.causes)
    fmt::print("\nFOUND {} time{}: {}\n{}\n  again: fault_damaged_files --seed={}{}\n", c.times,
               c.times == 1 ? "" : "s", cause, c.text, c.seed,
               a.plan.subject.empty() ? "" : " --subject=" + a.plan.subject);
}

}  // namespace

int main(int argc, char** argv) {
  std::string name = (std::filesystem::temp_directory_path() / "ztrain-damaged-XXXXXX").string();
  try {
    Arguments a = parse(argc, argv);
    REQUIRE(::mkdtemp(name.data()) != nullptr, "cannot make {}", name);
    a.plan.folder = name;
    prepare_environment(name);
    const damaged_files::Report report = damaged_files::run_cases(a.plan);
    print(a, report);
    if (a.keep)
      fmt::print("files: {}\n", name);
    else
      std::filesystem::remove_all(name);
    return report.causes.empty() ? 0 : 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "fault_damaged_files: {}\n", e.what());
    std::error_code ignored;
    std::filesystem::remove_all(name, ignored);
    return 1;
  }
}
