#pragma once
// Reports of steps and evaluations on pairs of answers, of losses against a teacher, and of teachers.

#include "program/passes/unit_state.hpp"

namespace ztrain::program {

/// Appends the all-reduce of every rank's PreferenceSums into `to`. Does nothing if the job has no such
/// tensor. reported: [M, 9], or no tensor on a rank without the head.
void append_preference_report(Program& program, const PreferenceTensors& to,
                              const PreferenceTensors& reported);

/// Appends the copy of the sequences' log-probabilities to where the host reads them, on ranks with the head.
void give_logps(Program& program, const PreferenceTensors& to, const PreferenceTensors& reported);

/// Appends the all-reduce of every rank's sums of cross-entropy and divergence into `to`. Does nothing if the
/// job has no such tensor. reported: [M, 2], or no tensor on a rank without the head.
void append_distillation_report(Program& program, const TeacherTensors& to, const TeacherTensors& reported);

/// Appends the copies of the tokens' likeliest words to where the host reads them, on ranks with the head.
void give_likelihoods(Program& program, const TeacherTensors& to, const TeacherTensors& reported);

}  // namespace ztrain::program
