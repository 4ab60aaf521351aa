// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_MEMORY_SNAPSHOT_H_
#define CASTOR_TOOLS_REPORT_MEMORY_SNAPSHOT_H_

// A record as a snapshot of PyTorch's allocator, which pytorch.org/memory_viz
// and torch.cuda._memory_viz open: who held how much of which tier, and when.
// A device of the snapshot is a tier of a rank, by rank, then from the fastest
// tier down; those that hold nothing are left out. On it are allocated:
//
// - each state that is at home there, as one block, until a reseal changes it;
// - each copy of a chunk on the device, from its fetch to its release;
// - each lease;
// - one block that stands for the slots without a copy, staging and buffers. It
//   is as large as the tier's use beside the above was at its least, so blocks
//   never add up to more than was in use.
//
// Sizes and times are the record's, the latter in microseconds from the first
// event. Addresses are made up: blocks that live at one time do not overlap.
// What each block is stands where a stack trace would. Pure function,
// thread-safe.

#include <ostream>

#include "offload/record/record_reader.h"
#include "tools/report/statistics/run_times.h"

namespace castor {

// What comes before the first step is written if `steps` are all of them. The
// state of `out` says whether it could be written.
void WriteMemorySnapshot(const RunRecord& record, const StepRange& steps,
                         std::ostream& out);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_MEMORY_SNAPSHOT_H_
