#pragma once
// The last passes of every compile, in this order: link_dependencies, plan_lifetimes, plan_memory, then
// verify.

#include <array>
#include <string>
#include <vector>

#include "program/ir/program.hpp"

namespace ztrain::program {

/// Fills Op::after from data hazards: an op waits for the last writer of what it reads, and for the last
/// writer and all later readers of what it writes, where those are on another stream and not already ordered
/// before it. Bytes of a view conflict only with bytes that overlap them within the same base.
void link_dependencies(Program& program);

/// Fills Tensor::first and last for every transient tensor with storage. A `release` op ends its input's
/// life.
void plan_lifetimes(Program& program);

/// Assigns addresses, aligned to 256 bytes on the device and to pages of 4096 elsewhere: persistent tensors
/// category by category, transient ones by reuse of bytes whose tensor is past its last op, and those of a
/// ring as its slots say; where the reuse crosses streams, adds the Op::after edges that make it safe. Fills
/// Program::plan. Call after link_dependencies and plan_lifetimes. Returns false, and nothing is of use, if
/// no placement suits the rings. slack: the share by which a tier with rings that rotate may need more than
/// is alive at once.
bool plan_memory(Program& program, double slack = 0);

/// Bytes of the regions of persistent tensors, by tier, as plan_memory makes them.
std::array<std::int64_t, tier_count> persistent_bytes(const Program& program);

/// The largest sum of the sizes of transient tensors that are alive at once, by tier, aligned as plan_memory
/// does. Call after plan_lifetimes.
std::array<std::int64_t, tier_count> live_bytes(const Program& program);

/// Proves one rank's Program: every transient tensor is written before it is read and not accessed outside
/// [first, last]; nothing is overwritten that nobody has read; conflicting accesses are ordered by stream
/// order and `after` alone; tensors whose bytes overlap have disjoint lives, and every access of the earlier
/// one is ordered before the first of the later. Throws Error with a sentence naming the ops and the tensor.
void verify_rank(const Program& program);

/// Proves how every value of one rank's Program is spread over the ranks of each axis
/// (program/ir/placement.hpp has the ideas; the rules here are of their own): nothing is added up that is
/// equal already, or left unadded, or taken as whole where it is a part; the gradient of each parameter is
/// summed over just the axes it has to be. Programs that do not name their parameters are not looked at.
/// Throws Error naming the op, the parameter and the axis.
void verify_placements(const Program& program);

/// Part of it: the gradient's norm counts each element once, whoever holds copies of it. Throws Error naming
/// the parameter where this rank's part of the norm leaves out elements that it speaks for, or counts those
/// that another rank counts: of copies over `replicate`, and over `tensor` of what is not cut there, the
/// first rank's.
void verify_owners(const Program& program);

/// Part of it: an all-to-all sends blocks that lie one after another, a block for each rank. Before one by
/// which split tokens become split columns, swap_blocks puts each rank's columns together; behind one by
/// which columns become tokens it puts each token's together. Throws Error naming an op that reads blocks for
/// rows, or rows for blocks, or cuts them otherwise.
void verify_blocks(const Program& program);

/// Proves the joint graph of a set of ranks: the k-th communication of a group is of the same kind, bytes and
/// dtype on all its members, each send has its receive, and the graph of all ranks (communications merged
/// into one node, stream order, `after`, and the one host thread's issue order for communications) has no
/// cycle. Ranks whose Programs are identical but for rank may be given once: programs[i] stands for the ranks
/// in classes[i]. Throws Error naming the ops and ranks.
void verify_no_deadlock(const std::vector<const Program*>& programs,
                        const std::vector<std::vector<int>>& classes);

}  // namespace ztrain::program
