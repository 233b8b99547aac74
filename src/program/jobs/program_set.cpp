#include "program/jobs/program_set.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "program/passes/final_passes.hpp"

namespace ztrain::program {

void ProgramSet::add(Program program, Successions after) {
  programs_.push_back(std::move(program));
  after_.push_back(std::move(after));
}

std::size_t ProgramSet::index_of(std::string_view name) const {
  const auto found = std::ranges::find(programs_, name, &Program::name);
  ASSERT(found != programs_.end(), "the job has no Program '{}'", name);
  return static_cast<std::size_t>(found - programs_.begin());
}

const Program& ProgramSet::at(std::string_view name) const {
  return programs_[index_of(name)];
}

Program& ProgramSet::at(std::string_view name) {
  return const_cast<Program&>(static_cast<const ProgramSet&>(*this).at(name));
}

const Program* ProgramSet::find(std::string_view name) const {
  const auto found = std::ranges::find(programs_, name, &Program::name);
  return found == programs_.end() ? nullptr : &*found;
}

std::vector<const Program*> ProgramSet::all() const {
  std::vector<const Program*> all;
  for (const Program& p : programs_) all.push_back(&p);
  return all;
}

void Succession::start(std::string_view name) {
  const Program& next = programs_->at(name);
  const Successions& after = programs_->after(programs_->index_of(name));
  ASSERT(std::ranges::find(after, last_) != after.end(), "the Program '{}' cannot run {}", next.name,
         last_.empty() ? "before what it needs is derived from the state" : fmt::format("after '{}'", last_));
  last_ = next.name;
}

void verify_together(const std::vector<std::vector<const Program*>>& programs,
                     const std::vector<std::vector<int>>& classes) {
  for (std::size_t which = 0; which < programs.front().size(); ++which) {
    std::vector<const Program*> one;
    for (const std::vector<const Program*>& of_class : programs) one.push_back(of_class[which]);
    verify_no_deadlock(one, classes);
  }
}

}  // namespace ztrain::program
