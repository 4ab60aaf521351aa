// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/simulate/simulate_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "chunk/base/quote.h"
#include "placement/step_trace.h"
#include "tools/cli/flags.h"
#include "tools/cli/placement_flags.h"
#include "tools/cli/prefetch_flag.h"
#include "tools/cli/rate_text.h"
#include "tools/cli/size_text.h"

namespace castor {
namespace {

constexpr int64_t kMaxRanks = 1 << 20;
constexpr int64_t kMaxPoints = 1000;
constexpr int64_t kMaxEvaluations = 1000;

constexpr char kFooter[] =
    R"(TRACE is a castor.trace/1 file: a recorded step, chunk by chunk. It is replayed step after
step on the links of the machine (castor probe -o machine.json), with the policies and the
rules for homes that training itself uses, under any budget: bytes and peaks are those of a
run to the byte. What the machine file does not know takes no time, and is said.

SIZE is 24GiB (2^30), 24GB (10^9), 1.5GiB, 512KiB or bytes. A sweep simulates --points budgets
from the first to the last: device-budget=2GiB..24GiB, or host-budget=...; those at which the
step does not fit are shown as such.

The engine knows the machine, as a trainer's that is told of it: it weighs fetches and homes by
time where the file has every link that they pass. How long a step computes it knows as a whole.

Rules of --place go by the names of a layout's parameters with --layout, else by those of
chunks: chunk.0, chunk.1 and so on. A step of --then is made when TRACE has been, once each,
with TRACE twice after it: what departs from the plan is served on demand and planned anew.

With --grad-mode reuse a step recorded otherwise is made as a trainer makes it that lets go of
a chunk before its gradient is written over it.

Exit code 3: the step does not fit, with what would make it fit.

Examples:
  castor simulate step.json --machine machine.json --device-budget 8GiB --host-budget 64GiB
  castor simulate step.json --machine machine.json --device-budget 8GiB --host-budget 16GiB \
      --nvme 200GiB --policy planned
  castor simulate step.json --machine machine.json --host-budget 64GiB \
      --sweep device-budget=2GiB..24GiB --svg sweep.svg
  castor simulate step.json --machine machine.json --device-budget 8GiB --host-budget 64GiB \
      --limit param@device=25% --evaluate 1 --then longer.json
)";

std::string Upper(std::string text) {
  for (char& c : text) {
    c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return text;
}

Status Missing(std::string_view what) {
  return InvalidArgument(fmt::format(
      "{} is missing (flags and values: castor simulate --help)", what));
}

// "device-budget=2GiB..24GiB".
Result<SimulateRequest::Sweep> ReadSweep(const std::string& text,
                                         int64_t points) {
  const auto bad = [&](std::string_view why) {
    return InvalidArgument(
        fmt::format("--sweep {}: {}; write device-budget=2GiB..24GiB or "
                    "host-budget=8GiB..64GiB",
                    Quoted(text), why));
  };
  SimulateRequest::Sweep sweep;
  const size_t equals = text.find('=');
  const size_t dots = text.find("..");
  if (equals == text.npos || dots == text.npos || dots < equals) {
    return bad("it names no budget and two sizes");
  }
  const std::string name = text.substr(0, equals);
  if (name == SweptBudgetName(SweptBudget::kHost)) {
    sweep.budget = SweptBudget::kHost;
  } else if (name != SweptBudgetName(SweptBudget::kDevice)) {
    return bad(fmt::format("{} is no budget to sweep", Quoted(name)));
  }
  const Result<Bytes> first =
      ParseSize(text.substr(equals + 1, dots - equals - 1));
  if (!first.ok()) return bad(first.status().message());
  const Result<Bytes> last = ParseSize(text.substr(dots + 2));
  if (!last.ok()) return bad(last.status().message());
  if (*last <= *first) return bad("the second size is not above the first");
  // Even steps, on whole pages but for the ends; fewer where pages are few.
  constexpr Bytes kPage = KiB(4);
  const double span = static_cast<double>((*last - *first).count());
  for (int64_t i = 0; i < points; ++i) {
    const double part =
        static_cast<double>(i) / static_cast<double>(points - 1);
    Bytes value = *first + Bytes(static_cast<int64_t>(span * part));
    if (i + 1 == points) {
      value = *last;
    } else if (i > 0) {
      value = RoundDown(value, kPage);
    }
    if (sweep.values.empty() || value > sweep.values.back()) {
      sweep.values.push_back(value);
    }
  }
  return sweep;
}

Status CheckTogether(const SimulateFlags& flags) {
  if (flags.trace.empty()) return Missing("TRACE");
  if (flags.machine.empty()) return Missing("--machine FILE");
  if (flags.json && flags.plain) {
    return InvalidArgument("--json and --plain exclude each other");
  }
  if (!flags.svg.empty() && flags.sweep.empty()) {
    return InvalidArgument(
        "--svg draws a sweep: give --sweep device-budget=FROM..TO too");
  }
  if (!flags.sweep.empty() && !flags.then.empty()) {
    return InvalidArgument(
        "--then makes other steps at one budget, and --sweep one step at many: "
        "give one of them");
  }
  if (!flags.layout.empty() && !flags.dtype.empty()) {
    return InvalidArgument(
        "--layout says of which type parameters are: leave --dtype away");
  }
  return OkStatus();
}

Status TakeBudgets(const SimulateFlags& flags, SimulateRequest* request) {
  request->nvme_budget = flags.nvme;
  const auto take = [&](const std::optional<Bytes>& given, SweptBudget budget,
                        Bytes* to) -> Status {
    const bool swept = request->sweep && request->sweep->budget == budget;
    if (swept && given) {
      return InvalidArgument(
          fmt::format("--{} is swept: leave it out, or sweep the other budget",
                      SweptBudgetName(budget)));
    }
    if (!swept && !given) {
      return Missing(fmt::format("--{} SIZE", SweptBudgetName(budget)));
    }
    *to = given.value_or(Bytes(0));
    return OkStatus();
  };
  CASTOR_RETURN_IF_ERROR(
      take(flags.device_budget, SweptBudget::kDevice, &request->device_budget));
  return take(flags.host_budget, SweptBudget::kHost, &request->host_budget);
}

}  // namespace

std::string_view SweptBudgetName(SweptBudget budget) {
  return budget == SweptBudget::kDevice ? "device-budget" : "host-budget";
}

void DeclareSimulateFlags(CLI::App& app, SimulateFlags* flags) {
  AddOptionalPositional(app, "TRACE", &flags->trace,
                        "the recorded step, a castor.trace/1 file");
  AddTextFlag(app, "--machine", &flags->machine,
              "speeds of its links, from castor probe", "FILE");
  AddSizeFlag(app, "--device-budget", &flags->device_budget,
              "bytes that a rank may hold on its device");
  AddSizeFlag(app, "--host-budget", &flags->host_budget,
              "the same in pinned host memory");
  AddSizeFlag(app, "--nvme", &flags->nvme, "the same on NVMe (there is none)");
  AddTextFlag(app, "--layout", &flags->layout,
              "layout of the trace's chunks, from castor search -o", "FILE");
  AddChoiceFlag(app, "--dtype", &flags->dtype, {"f32", "bf16", "f16"},
                "type of parameters, where TRACE does not say (bf16)");
  AddChoiceFlag(app, "--optimizer", &flags->optimizer,
                {"adamw", "adam", "sgd", "lion"},
                "which states it has (adamw)");
  AddChoiceFlag(app, "--moments", &flags->moments, {"f32", "bf16"},
                "type of the optimizer's moments (f32)");
  AddChoiceFlag(app, "--grad-mode", &flags->grad_mode,
                {"separate", "fp32", "reuse"},
                "gradients are of the parameters' type, fp32, or written over "
                "parameters (separate)");
  AddIntFlag(app, "--stage", &flags->stage, 0, 3, "ZeRO stage (3)");
  AddIntFlag(app, "--shard-group", &flags->shard_group, 1, kMaxRanks,
             "ranks that share one set of shards (as recorded)");
  AddChoiceFlag(app, "--optimizer-span", &flags->optimizer_span,
                {"group", "world"},
                "optimizer states are cut among the ranks of a group, or among "
                "all (as recorded)");
  AddIntFlag(app, "--world", &flags->world, 1, kMaxRanks,
             "ranks (as recorded)");
  AddIntFlag(app, "--ranks-per-host", &flags->ranks_per_host, 1, kMaxRanks,
             "ranks that share a host's memory, cores and drives (1)");
  AddChoiceFlag(app, "--policy", &flags->policy, {"auto", "planned"},
                "who decides which copies stay (auto)");
  AddTextFlag(app, "--prefetch", &flags->prefetch, kPrefetchFlagHelp,
              "N|deadlines");
  AddTextListFlag(app, "--limit", &flags->limit, kLimitFlagHelp);
  AddTextListFlag(app, "--place", &flags->place, kPlaceFlagHelp);
  AddRealFlag(app, "--clip", &flags->clip, 0, 1e30,
              "largest global norm of the gradient, which updates then wait "
              "for; 0: none (1)");
  AddTextFlag(app, "--compute", &flags->compute,
              "compute time of a step: 1.5s, 800ms (as recorded)", "TIME");
  AddIntFlag(app, "--evaluate", &flags->evaluate, 0, kMaxEvaluations,
             "forward passes before every step, in which nothing is trained, "
             "beside those of TRACE (0)");
  AddTextListFlag(
      app, "--then", &flags->then,
      "FILE of another step of the same chunks, made after those of "
      "TRACE; repeatable");
  AddTextFlag(app, "--device-memory", &flags->device_memory,
              "speed of the device's own memory: 2TB/s (instant)", "SPEED");
  AddChoiceFlag(app, "--trainer", &flags->trainer, {"stream", "thread"},
                "computes on a stream, or on its own thread (stream)");
  AddTextFlag(app, "--sweep", &flags->sweep,
              "BUDGET=FROM..TO: one step for each of many budgets", "RANGE");
  AddIntFlag(app, "--points", &flags->points, 2, kMaxPoints,
             "budgets of a sweep (12)");
  AddTextFlag(app, "--svg", &flags->svg, "draw the sweep into this file",
              "FILE");
  AddSwitch(app, "--json", &flags->json, "print one JSON document");
  AddSwitch(app, "--plain", &flags->plain, "print tab-separated lines");
  SetHelpFooter(app, kFooter);
}

Result<SimulateRequest> CheckSimulateFlags(const SimulateFlags& flags) {
  CASTOR_RETURN_IF_ERROR(CheckTogether(flags));
  SimulateRequest request;
  request.trace_file = flags.trace;
  request.machine_file = flags.machine;
  if (!flags.sweep.empty()) {
    CASTOR_ASSIGN_OR_RETURN(request.sweep,
                            ReadSweep(flags.sweep, flags.points));
  }
  CASTOR_RETURN_IF_ERROR(TakeBudgets(flags, &request));
  if (!flags.dtype.empty()) {
    request.dtype = ParseDType(Upper(flags.dtype)).value();
  }
  request.layout_file = flags.layout;
  request.optimizer =
      DefaultOptimizerOptions(ParseOptimizer(flags.optimizer).value());
  request.optimizer.moment_dtype = ParseDType(Upper(flags.moments)).value();
  request.stage = static_cast<int>(flags.stage);
  if (!flags.optimizer_span.empty()) {
    request.optimizer_span =
        flags.optimizer_span == OptimizerSpanName(OptimizerSpan::kWorld)
            ? OptimizerSpan::kWorld
            : OptimizerSpan::kGroup;
  }
  const auto small = [](const std::optional<int64_t>& number) {
    return number ? std::optional(static_cast<int>(*number)) : std::nullopt;
  };
  request.shard_group = small(flags.shard_group);
  request.ranks = small(flags.world);
  request.ranks_per_host = static_cast<int>(flags.ranks_per_host);
  request.policy =
      flags.policy == "planned" ? PlanPolicy::kPlanned : PlanPolicy::kAuto;
  CASTOR_ASSIGN_OR_RETURN(const PrefetchChoice prefetch,
                          ParsePrefetchFlag(flags.prefetch));
  request.prefetch = prefetch.mode;
  request.prefetch_depth = prefetch.depth;
  if (!flags.limit.empty()) {
    CASTOR_ASSIGN_OR_RETURN(request.limits, ParseLimitFlag(flags.limit));
  }
  CASTOR_ASSIGN_OR_RETURN(request.rules, ParsePlaceFlag(flags.place));
  request.clip = flags.clip > 0;
  request.evaluations = flags.evaluate;
  request.then = flags.then;
  if (flags.grad_mode == "fp32") request.grad_mode = GradMode::kFp32;
  if (flags.grad_mode == "reuse") request.grad_mode = GradMode::kReuse;
  if (!flags.compute.empty()) {
    const Result<int64_t> ns = ParseStepTime(flags.compute);
    if (!ns.ok()) return ns.status().WithContext("--compute");
    request.compute_ns = *ns;
  }
  request.trainer =
      flags.trainer == "thread" ? SimTrainer::kThread : SimTrainer::kStream;
  request.svg = flags.svg;
  if (flags.json) request.form = SimulateRequest::Form::kJson;
  if (flags.plain) request.form = SimulateRequest::Form::kPlain;
  return request;
}

}  // namespace castor
