// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_SUB_TRACKS_H_
#define CASTOR_TOOLS_REPORT_SUB_TRACKS_H_

// Viewers of traces want the events of one track to nest, and drop or misplace
// those that overlap in part. Transfers do overlap; so each kind gets as many
// tracks as it needs, and on each of them one thing happens at a time. Pure
// function, thread-safe.

#include <span>
#include <vector>

#include "tools/report/intervals.h"

namespace castor {

// For each interval the track it goes on, counted from 0: the lowest that is
// free when it begins. A track is free again when its last interval has ended.
// REQUIRES: ascending by begin.
std::vector<int> AssignSubTracks(std::span<const Interval> intervals);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_SUB_TRACKS_H_
