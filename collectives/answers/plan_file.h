// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ANSWERS_PLAN_FILE_H_
#define CASTOR_COLLECTIVES_ANSWERS_PLAN_FILE_H_

// What `castor plan -o` found to fit, for a trainer to seal its engine with:
//
//   {
//     "schema": "castor.plan/1",
//     "model": {"name": "llama-3-8b", "tensors": 291, "elements": 8030261248,
//               "packing": "0f3a6c1d9b2e4875"},
//     "room_for": {"moments": "2 of F32", "norm": true, "processes": true},
//     "world": 8,
//     "stage": 3,
//     "align_elements": 64,
//     "chunk": {"min_bytes": 33554432, "max_bytes": 536870912},
//     "device_budget_bytes": 17179869184,
//     "host_budget_bytes": 34359738368,
//     "nvme_bytes": 68719476736,
//     "prefetch": "deadlines", "step_compute_ns": 800000000,
//     "policy": "planned",
//     "shard_group": 4, "optimizer_span": "world",
//     "grad_mode": "separate",
//     "accumulation_order": "each",
//     "limits": [{"state": "exp_avg", "tier": "host", "bytes": 1073741824},
//                {"state": "param", "tier": "device", "fraction": 0.25}],
//     "rules": [{"tier": "nvme", "glob": "*.experts.*", "dtype": "BF16",
//                "least_bytes": 1048576, "state": "master"}]
//   }
//
// "packing" is a digest of what decides where parameters lie. "room_for" is
// what else needs bytes: moments of the optimizer, sums for the gradient's
// norm, and what ranks exchange in that are processes. Plans of before have
// neither, and a run is then not held to them.
//
// A chunk is searched between two sizes as Seal does, or is of "bytes", or as a
// "layout" file says. "nvme_bytes", "limits", "rules", "machine", the file of
// speeds that it was planned with, "prefetch", "step_compute_ns", "shard_group"
// and "optimizer_span" may be left out: there is no NVMe tier, homes are chosen
// freely, links count alike, fetches ahead go by depth, nobody knows how long a
// step computes, all ranks are one group. Everything else must be there.
// Budgets are those of one rank. Values and pure functions, thread-safe.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/param_spec.h"
#include "collectives/zero_config.h"
#include "collectives/zero_options.h"
#include "offload/kernels/optimizer_options.h"

namespace castor {

inline constexpr char kPlanSchema[] = "castor.plan/1";

// A longer text is refused.
inline constexpr uint64_t kMaxPlanBytes = uint64_t{1} << 20;

struct PlanFile {
  std::string model = {};  // what people call it
  int64_t tensors = 0;
  Elements elements = {};
  int world = 1;
  std::string packing = {};  // PackingDigest; empty: not known
  std::string moments = {};  // MomentsText; empty: "room_for" is not known
  bool norm = false;
  bool processes = false;
  // As far as a plan tells; `nvme` is empty. Rules have no callbacks.
  ZeroOptions engine = {};
  EngineFiles files = {};
  std::optional<Bytes> nvme = {};
};

// Of sizes, types and which are trained, in order: parameters of one digest are
// packed alike. 16 hexadecimal digits.
std::string PackingDigest(std::span<const ParamSpec> params);
// "2 of F32": what the optimizer keeps of each parameter besides its master.
std::string MomentsText(const OptimizerOptions& optimizer);

// The keys of a config (zero_config.h) that a plan says.
std::vector<std::string> PlanKeys();

// The same plan gives the same text, which ParsePlan reads back as it was.
// REQUIRES: its numbers are within ParsePlan's limits.
std::string WritePlan(const PlanFile& plan);

// Malformed, with line and column, for every text that is no plan: another
// schema, keys that are unknown, missing or given twice, numbers out of their
// limits. The files that it names are read by the caller.
Result<PlanFile> ParsePlan(std::string_view text);

// Reads the layout and the machine that the plan names, from `folder` on.
// InvalidArgument where they are not there, Malformed where they are none; each
// names its path.
Status ReadFilesOfPlan(const std::string& folder, PlanFile* plan);

// InvalidArgument, with both numbers, where the plan is for another model, one
// that is packed otherwise, or another number of ranks; or where ranks are
// processes and the plan has no room for what these exchange in.
Status CheckPlanFits(const PlanFile& plan, std::span<const ParamSpec> params,
                     int world, bool processes);

// Sets what the plan says in `options`, whose machine goes before the plan's.
// One drive without a size gets the plan's. InvalidArgument where the plan
// counts on NVMe and `options` name no drive, or the other way round; and where
// `options` have moments or a norm that the plan has no room for.
Status ApplyPlan(const PlanFile& plan, ZeroOptions* options);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_ANSWERS_PLAN_FILE_H_
