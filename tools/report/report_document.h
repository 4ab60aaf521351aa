// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_REPORT_DOCUMENT_H_
#define CASTOR_TOOLS_REPORT_REPORT_DOCUMENT_H_

// A recorded run's statistics as `castor report` prints them. Pure functions,
// thread-safe.

#include <array>
#include <cstdint>
#include <string_view>

#include "chunk/base/status.h"
#include "chunk/text/json_value.h"
#include "placement/run_event.h"
#include "tools/cli/text/document.h"
#include "tools/cli/text/text_forms.h"
#include "tools/report/advice.h"
#include "tools/report/statistics/run_setup.h"
#include "tools/report/statistics/run_statistics.h"

namespace castor {

// `name` is what the record is called, `completeness` the record's. Lines of
// --plain start with what they are about:
//
//   headline  SENTENCE
//   proposal  NS_OF_A_STEP  MORE_BYTES  SENTENCE
//   record  KEY  VALUE
//   step    STEP  complete|partial  NS  STALLED_NS
//   tier    TIER  PEAK_BYTES  BUDGET_BYTES  RANK  STEP
//   arena   NAME  RANK  ALLOCATOR  PEAK_BYTES  BUDGET_BYTES  LIVE_BYTES
//           ACTIVE_BYTES  RESIDENT_BYTES  RETAINED_BYTES  ALLOCATED  REFUSED
//   homes   FROM_STEP  TIER  BUDGET_BYTES  and bytes of PARAM  GRAD  MASTER
//           and each state of the optimizer
//   mark    STEP  RANK  NS  WORDS
//   slots   SLOT_BYTES  SLOTS  seconds|links  COST  LOWER_BOUND
//           ONE_MORE_SAVES  ONE_LESS_COSTS  (-1: not known)
//   link    LINK  COUNT  BYTES  BUSY_NS  OUTSIDE_BYTES
//   stall   CAUSE  COUNT  NS
//   chunk   CAUSE  CHUNK  COUNT  NS  PARAMETERS
Document ReportDocument(std::string_view name, const RunStatistics& run,
                        const Status& completeness, const Advice& advice = {},
                        StripInk ink = StripInk::kAscii);

// Adds what pictures draw, for programs: the step `step`, and the chunks.
void AddPictures(const RunRecord& record, const RunSetup& setup, int32_t step,
                 Document* doc);

// The same document with no more steps than a page can show: of several, the
// slowest.
JsonValue ForPage(const JsonValue& document);

// An object: what is not zero, by the name of its cause.
JsonValue ByCauseJson(const std::array<int64_t, kRunCauses>& counts);

// An array, by class of slots: what a plan's fetches through them cost, and
// what one slot more or less is worth.
JsonValue SlotWorthJson(const PlanStatistics& plan);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_REPORT_DOCUMENT_H_
