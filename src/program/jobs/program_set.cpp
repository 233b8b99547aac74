#include "program/jobs/program_set.hpp"

#include "base/error.hpp"
#include "program/passes/final_passes.hpp"

namespace ztrain::program {

void ProgramSet::add(Program program, Successions after) {
  programs_.push_back(std::move(program));
  after_.push_back(std::move(after));
}

const Program& ProgramSet::at(std::string_view name) const {
  for (const Program& p : programs_)
    if (p.name == name) return p;
  ASSERT(false, "the job has no Program '{}'", name);
}

Program& ProgramSet::at(std::string_view name) {
  return const_cast<Program&>(static_cast<const ProgramSet&>(*this).at(name));
}

std::vector<const Program*> ProgramSet::all() const {
  std::vector<const Program*> all;
  for (const Program& p : programs_) all.push_back(&p);
  return all;
}

void verify_together(const std::vector<std::vector<const Program*>>& programs,
                     const std::vector<std::vector<int>>& classes) {
  for (std::size_t which = 0; which < programs.front().size(); ++which) {
    std::vector<const Program*> one;
    for (const std::vector<const Program*>& of_class : programs) one.push_back(of_class[which]);
    verify_joint(one, classes);
  }
}

}  // namespace ztrain::program
