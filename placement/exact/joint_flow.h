// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_PLACEMENT_EXACT_JOINT_FLOW_H_
#define CASTOR_PLACEMENT_EXACT_JOINT_FLOW_H_

// Solves joint problems, with a bound.
//
// For one split each kind of copy by itself is an interval problem, and is
// solved exactly (placement/exact/interval_flow.h): the gathered copies with
// shards' copies given, and those with the gathered ones given. What couples
// the two is that a gap needs but one of them. Prices of slots found for one
// kind say what a gap is worth to it, and so what the other may still gain
// there; in turns, and from both ends, they give a bound and choices.
//
// The bound of one split is a line that bounds all of them, so the next split
// to look at is where the lowest lines are highest (Kelley 1960); then splits
// ever nearer to the best. Where bound and choice are still apart, prices are
// moved along the subgradient (placement/exact/joint_prices.h). Enough are
// forty flows of a thousand gaps, more of smaller ones.
//
// A split other than none is chosen only where it gains more. The same problem
// gives the same solution, on every machine. Pure, thread-safe.

#include "placement/exact/joint_problem.h"

namespace castor {

// A solution that VerifyJointSolution accepts. REQUIRES: CheckJointProblem is
// ok.
JointSolution SolveJoint(const JointProblem& problem);

}  // namespace castor

#endif  // CASTOR_PLACEMENT_EXACT_JOINT_FLOW_H_
