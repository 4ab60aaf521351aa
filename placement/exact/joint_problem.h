// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_EXACT_JOINT_PROBLEM_H_
#define CASTOR_PLACEMENT_EXACT_JOINT_PROBLEM_H_

// Which copies to keep from one use to the next where two kinds of them share
// the slots of a class, as a problem by itself: a gathered copy, which takes a
// slot from the end of one use to the next and spares the fetch and the gather,
// or the copy of a shard, of which several fit one slot, which lies there from
// one gather to the next and spares the fetch alone. How many slots hold shards
// is chosen once for the whole step: the split. With it comes the check of an
// answer, which knows nothing of how answers are found.
//
// The proof is that of placement/exact/interval_problem.h with a second price:
// a slot at moment t has the price p(t), the place of a shard's copy q(t). For
// a split of k slots, each with places for `parts`, no choice gains more than
//
//   sum p(t) (capacity(t) - k) + sum q(t) parts k +
//   sum over chunks of what the best choice for the chunk alone gains beyond
//   the prices of what it takes,
//
// which is a line in k. The lowest of several lines at each k, and of these the
// highest over all splits there are, bounds every choice with any split. The
// best choice for one chunk is found gap by gap: a shard's copy can be kept
// over a gap if the chunk was gathered where the gap begins, or the copy is
// there.
//
// Gathers are made in the order of uses: then who is kept where is alike for
// those on demand and those ahead. Values and pure functions, thread-safe. Part
// of the joint flow (joint_flow.h).

#include <cstdint>
#include <vector>

#include "chunk/base/status.h"
#include "placement/exact/interval_problem.h"

namespace castor {

// Between two uses of one chunk, in this step or across its border; moments are
// those of KeepInterval, also where they go round.
struct JointGap {
  int32_t idle_since = 0;  // the access that ended the use before
  int32_t last_need = 0;   // the moment at which that began
  int32_t need = 0;        // the moment at which the next begins
  int64_t gain = 0;        // of a gathered copy that is kept; positive
  // Of a shard's copy that is kept, from 0, where none may be, to `gain`.
  int64_t shard_gain = 0;
  // The gap of this chunk that ends at last_need; -1: it is gathered then.
  int32_t before = -1;
};

struct JointProblem {
  std::vector<int64_t> capacity;  // by moment; slots where none hold shards
  int64_t parts = 0;              // shards' copies that one slot holds
  std::vector<JointGap> gaps;
  // What all gains are multiples of, some thousand times as large as there are
  // gaps (placement/exact/interval_flow.h).
  int64_t unit = 1;
};

struct JointPrices {
  std::vector<int64_t> slot;   // by moment; not negative
  std::vector<int64_t> shard;  // the same, of one place
};

struct JointSolution {
  int64_t split = 0;             // slots that hold shards' copies
  std::vector<bool> kept;        // by gap: the gathered copy
  std::vector<bool> shard_kept;  // by gap: the shard's, since its last gather
  int64_t gain = 0;              // of both
  std::vector<JointPrices> proof;
  // What the prices prove: no choice with any split gains more. Rounded down to
  // a multiple of what all gains are multiples of.
  int64_t bound = 0;
  // Which of these proves the bound alone; -1: none does. Its prices of slots
  // say what one more or one less is worth, with the best split for as many.
  int32_t proves = -1;

  bool optimal() const { return gain == bound; }
};

// The most slots that may hold shards: what every moment has, and no more than
// all shards there are would fill.
int64_t LargestSplit(const JointProblem& problem);

// InvalidArgument, naming the first thing that has no meaning.
Status CheckJointProblem(const JointProblem& problem);

// The gaps of each chunk in their order; those of a circle from any one on.
std::vector<std::vector<size_t>> ChainsOf(const JointProblem& problem);

// From when on the shard's copy that spares the fetch at the end of `gap` lies
// in its place: the moment of the last gather before, which `kept` says.
// REQUIRES: the gathered copy is not kept over the gap.
int32_t ShardSince(const JointProblem& problem, const std::vector<bool>& kept,
                   size_t gap);

// The line that prices prove: at_zero + slope * split.
struct JointLine {
  __int128 at_zero = 0;
  __int128 slope = 0;

  __int128 At(int64_t split) const { return at_zero + slope * split; }
};
JointLine LineOf(const JointProblem& problem, const JointPrices& prices);
// The bound of several lines at one split, and at the best split there is; the
// sum of all gains where that is less.
int64_t BoundAt(const JointProblem& problem,
                const std::vector<JointLine>& lines, int64_t split);
int64_t BoundOf(const JointProblem& problem,
                const std::vector<JointLine>& lines);

// Ok, or Internal with the first thing that does not hold, as
// VerifyIntervalSolution. REQUIRES: CheckJointProblem is ok.
Status VerifyJointSolution(const JointProblem& problem,
                           const JointSolution& solution);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_EXACT_JOINT_PROBLEM_H_
