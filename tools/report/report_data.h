// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_REPORT_DATA_H_
#define CASTOR_TOOLS_REPORT_REPORT_DATA_H_

// A run's statistics as programs read them: one JSON document, or lines of
// fields between tabs for grep and awk. Pure functions, thread-safe.

#include <string>
#include <string_view>

#include "chunk/base/json_value.h"
#include "chunk/base/status.h"
#include "tools/report/plan_statistics.h"
#include "tools/report/run_statistics.h"

namespace castor {

// Keys in `_bytes` and `_ns` are integers; shares are of one. `completeness` is
// the record's.
JsonValue ReportJson(std::string_view name, const RunStatistics& statistics,
                     const Status& completeness);

// An array, by class of slots: what a plan's fetches through them cost, and
// what one slot more or less is worth.
JsonValue SlotWorthJson(const PlanStatistics& plan);

// Each line starts with what it is about:
//
//   record  KEY  VALUE
//   step    STEP  complete|partial  NS  STALLED_NS
//   tier    TIER  PEAK_BYTES  BUDGET_BYTES  RANK  STEP
//   arena   NAME  RANK  ALLOCATOR  PEAK_BYTES  BUDGET_BYTES  LIVE_BYTES
//           ACTIVE_BYTES  RESIDENT_BYTES  RETAINED_BYTES  ALLOCATED  REFUSED
//   slots   SLOT_BYTES  SLOTS  seconds|links  COST  LOWER_BOUND
//           ONE_MORE_SAVES  ONE_LESS_COSTS  (-1: not known)
//   link    LINK  COUNT  BYTES  BUSY_NS  OUTSIDE_BYTES
//   stall   CAUSE  COUNT  NS
//   chunk   CAUSE  CHUNK  COUNT  NS  PARAMETERS
std::string ReportPlain(std::string_view name, const RunStatistics& statistics,
                        const Status& completeness);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_REPORT_DATA_H_
