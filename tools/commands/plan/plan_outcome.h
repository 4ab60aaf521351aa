// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_PLAN_PLAN_OUTCOME_H_
#define CASTOR_TOOLS_COMMANDS_PLAN_PLAN_OUTCOME_H_

// One configuration, planned: what a rank would hold and move, whether that
// fits, how long a step's links, drives and optimizer would work, and how long
// the step would take. Then why states are where they are, how a recorded run
// compares, and which other configurations there are. Pure functions,
// thread-safe.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/text/json_value.h"
#include "collectives/answers/foretell.h"
#include "collectives/answers/plan_file.h"
#include "collectives/answers/seal_forecast.h"
#include "collectives/answers/step_times.h"
#include "collectives/dry/simulation_result.h"
#include "collectives/memory/budget_raises.h"
#include "placement/step_traffic.h"
#include "placement/trace/step_trace.h"
#include "tools/cli/text/document.h"
#include "tools/commands/plan/plan_request.h"

namespace castor {

struct PlanOutcome {
  PlanRequest request;
  // Most at one time, by formula or as recorded; and what of the device budget
  // is Castor's once they and the overhead are taken off.
  Bytes activations;
  Bytes castor_device;
  ChunkLayout layout;
  StepTrace step;
  SealOptions declared;
  Status fits;  // or Infeasible, and why
  // By how much budgets fall short of sealing an engine; none where it fits.
  BudgetRaises raises;
  // Where it fits.
  std::optional<SealForecast> seal;
  std::optional<StepForecast> forecast;
  // Some steps, the last of which follows others like it.
  std::optional<SimulationResult> run;
  StepTimes times;  // all unknown where no machine was given
  // The last step of the run, where it fits and the machine's file knows all
  // that it uses.
  std::optional<SimulatedStep> simulated;

  // What that step moves. REQUIRES: it fits.
  const StepTraffic& traffic() const { return run->steady().traffic; }
  // Of a step, simulated; empty where that is.
  std::optional<double> step_seconds() const;
  // The largest chunk that is not oversize.
  Bytes largest_chunk() const;
  // Of the device, with activations and overhead.
  Bytes device_total() const;
  // Of the host, with states beside chunks.
  Bytes host_total() const;
  // Of the device, what ranks that are processes exchange gradients in.
  Bytes exchange_buffers() const;
  // Between tiers and to other ranks, in a step.
  Bytes moved() const;
  // What a trainer that follows the plan gives its engine; 0 bytes of NVMe
  // where there is none. Where the device has no limit, what is planned is
  // enough. REQUIRES: it fits.
  Bytes engine_budget(Tier tier) const;
};

// The engine that is planned, with what of the budgets is Castor's. REQUIRES:
// the subject outlives it.
EngineRequest EngineRequestOf(const PlanSubject& subject,
                              const PlanOutcome& outcome);

// InvalidArgument where the flags make no sense for the model; everything that
// does not fit is an outcome.
// `steady_only`: peaks may be without those of a first step (foretell.h).
Result<PlanOutcome> MakePlan(const PlanSubject& subject, const PlanFlags& flags,
                             bool steady_only = false);

// For a trainer to load. REQUIRES: it fits.
PlanFile PlanFileOf(const PlanSubject& subject, const PlanOutcome& outcome);

// --- Why states are where they are -------------------------------------------
// Of the chunks of parameters whose names match `pattern` (chunk/text/glob.h),
// in order, a paragraph for each. A paragraph names the chunk's parameters that
// match. A sentence for each state says the home, which all parameters of the
// chunk share. The last sentence is what a step moves of the chunk, with times
// where the machine tells them.
// "chunks" in JSON, and lines of --plain:
//   state  CHUNK  STATE  TIER  WHY
//   moves  CHUNK  LINK  BYTES  TRANSFERS
// InvalidArgument, with the nearest name, where none matches. REQUIRES: the
// plan fits.
Result<Document> ExplainHomes(const PlanSubject& subject,
                              const PlanOutcome& outcome,
                              const std::string& pattern);

// What a step moves between tiers; lines of --plain: link FROM TO BYTES MOVES.
Table LinkTable(const StepTraffic& traffic);
JsonValue StepTrafficJson(const StepTraffic& traffic);

// --- Next to a recorded run --------------------------------------------------
// Peaks of tiers, of the rank that used most; bytes of links in a step, of all
// ranks; how long a step took; and what the run was told otherwise: budgets,
// and its policy as far as steps tell it. Lines of --plain: other_budget,
// other_policy, peak and measured. InvalidArgument, naming the first
// difference, where the run was of other ranks, another stage, another model or
// other chunks; Malformed where the file is no record. Steps of which a damaged
// record lacks something are left out, and `completeness` is the record's;
// kStoppedEarly where no step is left. REQUIRES: the outcome fits.
Result<Document> CompareWithRun(const PlanSubject& subject,
                                const PlanOutcome& outcome,
                                const std::string& file, Status* completeness);

// --- Other configurations ----------------------------------------------------
// The figures of a plan that fits, by which variants are compared. Whole plans
// of a large model's variants would take too much memory.
struct PlanFigures {
  PlanFlags flags;
  Bytes device;  // PlanOutcome::device_total, and so on
  Bytes host;
  Bytes nvme;
  Bytes moved;
  double fetch_cost = 0;  // as StepForecast has it
  std::optional<double> least_seconds;
  std::optional<double> most_seconds;
  std::optional<double> step_seconds;
};
// REQUIRES: it fits.
PlanFigures FiguresOf(const PlanOutcome& outcome);

// Each a change of flags that was planned like the outcome.
struct PlanVariant {
  std::string what;  // "raise the device budget by 1.5 GiB", "stage 2"
  PlanFigures figures;
};
using PlanVariants = std::vector<PlanVariant>;

// Changes of one flag that fit, each the least of its kind. Every change was
// planned, so no change is a guess. Empty where none helps. REQUIRES: `outcome`
// does not fit.
Result<PlanVariants> ChangesThatFit(const PlanSubject& subject,
                                    const PlanOutcome& outcome);

// Other stages, chunk sizes, policies, no homes on the device, and activations
// computed again: those that fit, the best first. That is the shortest step,
// simulated; where a step's time is not known, the fewest bytes moved, behind
// those whose is.
Result<PlanVariants> Alternatives(const PlanSubject& subject,
                                  const PlanOutcome& outcome);

// The same with one GiB more on the device, and on the host.
// Nothing where no device budget was given: then all is there already.
Result<PlanVariants> OneMoreGiB(const PlanSubject& subject,
                                const PlanOutcome& outcome);

// --- The largest that fits
// ----------------------------------------------------
struct LargestFit {
  std::string_view what;  // "batch" or "seq"
  int64_t fits = 0;       // 0: not even the least
  int64_t refused = 0;    // the least above that does not fit
  std::string why;        // it does not
};

// The largest batch, or sequence in steps of 128 tokens, with which the model
// fits, as `flags.fit` asks; each that was tried was planned. REQUIRES: `flags`
// ask for one of them.
Result<LargestFit> LargestThatFits(const PlanSubject& subject,
                                   const PlanFlags& flags);
// The same flags with that batch or sequence; with the least where none fits.
PlanFlags WithLargest(const PlanFlags& flags, const LargestFit& largest);

// --- For the plan's page -----------------------------------------------------
// One pair of budgets of a rank, planned like the outcome.
struct BudgetPoint {
  Bytes device;
  Bytes host;
  bool fits = false;
  Bytes moved = {};  // in a step; 0 where it does not fit
  std::optional<double> step_seconds = {};  // where it is known
};

// Quarters to four times the budgets that were asked for; without a host
// budget, of what the model's states take. By device, then by host. Nothing
// without a device budget.
Result<std::vector<BudgetPoint>> BudgetGrid(const PlanSubject& subject,
                                            const PlanOutcome& outcome);

// All chunks, with parameters, homes and reasons, as a run's page has them
// (tools/report/statistics/step_detail.h). REQUIRES: it fits.
JsonValue PlannedChunksJson(const PlanSubject& subject,
                            const PlanOutcome& outcome);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_PLAN_PLAN_OUTCOME_H_
