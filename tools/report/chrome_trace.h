// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_REPORT_CHROME_TRACE_H_
#define CASTOR_TOOLS_REPORT_CHROME_TRACE_H_

// A record as Chrome trace event JSON, which ui.perfetto.dev, chrome://tracing
// and TensorBoard open. One process per rank; in it tracks for steps, chunks in
// use, stalls, each link, updates and leases, as many of each as it takes for
// events on one track never to overlap; a counter of bytes per tier; and an
// asynchronous slice for each time a chunk was whole on the device. A flow
// leads from the transfer or gather that prefetched a chunk to its first use.
// Pure function, thread-safe.

#include <ostream>

#include "offload/record/record_reader.h"
#include "tools/report/statistics/run_times.h"

namespace castor {

// Events in order of time, times in microseconds from the first of them. What
// comes before the first step is written if `steps` are all of them. The state
// of `out` says whether it could be written.
void WriteChromeTrace(const RunRecord& record, const StepRange& steps,
                      std::ostream& out);

}  // namespace castor

#endif  // CASTOR_TOOLS_REPORT_CHROME_TRACE_H_
