// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include "chunk/text/quantity_text.h"
#include "chunk/text/quote.h"
#include "collectives/options/option_table.h"
#include "tools/cli/flags.h"
#include "tools/commands/simulate/simulate_command.h"

namespace castor {
namespace {

constexpr int64_t kMaxRanks = 1 << 20;
constexpr int64_t kMaxPoints = 1000;
constexpr int64_t kMaxEvaluations = 1000;

constexpr char kFooter[] =
    R"(TRACE is a castor.trace/1 file: a recorded step, chunk by chunk. Castor replays the step again
and again on the links of the machine (castor probe -o machine.json), under any budget. Policies
and rules for homes are those of training. Bytes and peaks are those of a run to the byte. What
the machine's file lacks takes no time, and the page says so.

TRACE may be the record of a run, too (train_gpt --record, castor.torch.record): its typical step,
with the options, budgets and speeds of the run where flags say nothing else.

SIZE is 24GiB (2^30), 24GB (10^9), 1.5GiB, 512KiB or bytes. A sweep simulates --points budgets
from the first to the last: device-budget=2GiB..24GiB, or host-budget=... The page marks
budgets at which the step does not fit.

The engine knows the machine, as the engine of a trainer does that names the file. It weighs
fetches and homes by time where the file has every link on their way. It knows the compute time
of a step as a whole.

Rules of --place go by names of parameters with --layout, else by names of chunks: chunk.0,
chunk.1 and so on. Each --then adds a step after TRACE, once, with TRACE twice after it. The
engine serves on demand what departs from the plan, and plans anew.

With --grad-mode reuse a chunk is let go before its gradient is written over it, also in a step
that was recorded otherwise.

Exit code 3: the step does not fit. The page says what would.

Examples:
  castor simulate step.json --machine machine.json --device-budget 8GiB --host-budget 64GiB
  castor simulate step.json --machine machine.json --device-budget 8GiB --host-budget 16GiB \
      --nvme 200GiB --policy planned
  castor simulate run.rec --host-budget 16GiB
  castor simulate step.json --machine machine.json --host-budget 64GiB \
      --sweep device-budget=2GiB..24GiB --svg sweep.svg
  castor simulate step.json --machine machine.json --device-budget 8GiB --host-budget 64GiB \
      --limit param@device=25% --evaluate 1 --then longer.json
)";

Status Missing(std::string_view what) {
  return InvalidArgument(fmt::format(
      "{} is missing (flags and values: castor simulate --help)", what));
}

// Of "device-budget=2GiB..24GiB": even steps, on whole pages but for the ends;
// fewer where pages are few.
Result<std::vector<Bytes>> ReadSweep(const SimulateFlags& flags) {
  const std::string& text = flags.sweep;
  const auto bad = [&](std::string_view why) {
    return InvalidArgument(
        fmt::format("--sweep {}: {}; write device-budget=2GiB..24GiB or "
                    "host-budget=8GiB..64GiB",
                    Quoted(text), why));
  };
  const size_t equals = text.find('=');
  const size_t dots = text.find("..");
  if (equals == text.npos || dots == text.npos || dots < equals) {
    return bad("it names no budget and two sizes");
  }
  const std::string name = text.substr(0, equals);
  if (name != "device-budget" && name != "host-budget") {
    return bad(fmt::format("{} is no budget to sweep", Quoted(name)));
  }
  const Result<Bytes> first =
      ParseSize(text.substr(equals + 1, dots - equals - 1));
  if (!first.ok()) return bad(first.status().message());
  const Result<Bytes> last = ParseSize(text.substr(dots + 2));
  if (!last.ok()) return bad(last.status().message());
  if (*last <= *first) return bad("the second size is not above the first");
  std::vector<Bytes> values = {*first};
  const double span = static_cast<double>((*last - *first).count());
  for (int64_t i = 1; i + 1 < flags.points; ++i) {
    const double part =
        static_cast<double>(i) / static_cast<double>(flags.points - 1);
    const Bytes value =
        RoundDown(*first + Bytes(static_cast<int64_t>(span * part)), KiB(4));
    if (value > values.back()) values.push_back(value);
  }
  if (*last > values.back()) values.push_back(*last);
  return values;
}

// A sweep takes the place of the budget that it names.
Status CheckBudget(const SimulateFlags& flags, std::string_view name,
                   const std::optional<Bytes>& given) {
  const bool swept = flags.sweep.starts_with(fmt::format("{}=", name));
  if (swept && given) {
    return InvalidArgument(fmt::format(
        "--{} is swept: leave it out, or sweep the other budget", name));
  }
  if (swept || given) return OkStatus();
  return Missing(fmt::format("--{} SIZE", name));
}

}  // namespace

void DeclareSimulateFlags(CLI::App& app, SimulateFlags* flags) {
  AddOptionalPositional(
      app, "TRACE", &flags->trace_file,
      "the recorded step, a castor.trace/1 file, or a recorded run");
  OptionTable t =
      EngineOptions(&flags->engine, &flags->files).For(kSimulateFlag);
  t.Bind("--device-budget", &flags->device_budget);
  t.Bind("--host-budget", &flags->host_budget);
  t.OfFlag("--device-budget").Default("");
  t.Bind("--shard-group", &flags->shard_group).Default("as recorded");
  t.Bind("--compute", &flags->compute_ns).Default("as recorded");
  t.Size("", &flags->nvme_budget)
      .Flag("--nvme", "bytes of a rank on NVMe")
      .Default("there is none");
  t.Choice("", &flags->dtype, DTypeName,
           {DType::kF32, DType::kBF16, DType::kF16})
      .Flag("--dtype", "type of parameters, where TRACE does not say")
      .Default("bf16");
  t.Choice("", &flags->optimizer_span, OptimizerSpanName,
           {OptimizerSpan::kGroup, OptimizerSpan::kWorld})
      .Flag("--optimizer-span",
            "optimizer states are cut among the ranks of a group, or among all")
      .Default("as recorded");
  t.Whole("", &flags->ranks, 1, kMaxRanks)
      .Flag("--world", "ranks")
      .Default("as recorded");
  t.Whole("", &flags->ranks_per_host, 1, kMaxRanks)
      .Flag("--ranks-per-host",
            "ranks that share a host's memory, cores and drives");
  t.Whole("", &flags->evaluations, 0, kMaxEvaluations)
      .Flag("--evaluate",
            "forward passes before every step, in which nothing is trained, "
            "beside those of TRACE");
  t.Texts(&flags->then)
      .Flag(
          "--then",
          "FILE of another step of the same chunks, made after those of TRACE; "
          "repeatable");
  t.Words("SPEED")
      .Flag("--device-memory", "speed of the device's own memory: 2TB/s",
            [flags](std::string_view text) -> Status {
              CASTOR_ASSIGN_OR_RETURN(
                  const int64_t rate,
                  ParseBandwidth(text, kMinBytesPerSecond, kMaxBytesPerSecond));
              flags->device_memory = LinkModel{rate, 0};
              return OkStatus();
            })
      .Default("instant");
  t.Choice("", &flags->trainer,
           +[](SimTrainer trainer) -> std::string_view {
             return trainer == SimTrainer::kThread ? "thread" : "stream";
           },
           {SimTrainer::kStream, SimTrainer::kThread})
      .Flag("--trainer", "computes on a stream, or on its own thread");
  t.Text("", &flags->sweep)
      .Flag("--sweep", "BUDGET=FROM..TO: one step for each of many budgets")
      .Form("RANGE");
  t.Whole("", &flags->points, 2, kMaxPoints)
      .Flag("--points", "budgets of a sweep");
  t.Text("", &flags->svg)
      .Flag("--svg", "draw the sweep into this file")
      .Form("FILE");
  t.Switch("", &flags->json).Flag("--json", "print one JSON document");
  t.Switch("", &flags->plain).Flag("--plain", "print tab-separated lines");
  DeclareOptions(app, t);
  SetHelpFooter(app, kFooter);
}

Result<std::vector<Bytes>> CheckSimulateFlags(const SimulateFlags& flags) {
  if (flags.trace_file.empty()) return Missing("TRACE");
  if (flags.files.machine.empty() && flags.recorded == nullptr) {
    return Missing("--machine FILE");
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
  if (!flags.files.layout.empty() && flags.dtype) {
    return InvalidArgument(
        "--layout says of which type parameters are: leave --dtype away");
  }
  std::vector<Bytes> swept;
  if (!flags.sweep.empty()) {
    CASTOR_ASSIGN_OR_RETURN(swept, ReadSweep(flags));
  }
  CASTOR_RETURN_IF_ERROR(
      CheckBudget(flags, "device-budget", flags.device_budget));
  CASTOR_RETURN_IF_ERROR(CheckBudget(flags, "host-budget", flags.host_budget));
  return swept;
}

}  // namespace castor
