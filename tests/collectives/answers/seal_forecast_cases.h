// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_COLLECTIVES_ANSWERS_SEAL_FORECAST_CASES_H_
#define CASTOR_TESTS_COLLECTIVES_ANSWERS_SEAL_FORECAST_CASES_H_

// Trainings of every sort whose bytes are foretold (seal_forecast_test.cc).

#include <cstdint>
#include <string>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "collectives/zero_options.h"
#include "placement/plan.h"

namespace castor {

// One training whose bytes are foretold.
struct ForecastCase {
  std::string name;
  int world = 1;
  int stage = 3;
  DType dtype = DType::kF32;
  Bytes chunk = {};  // 0: searched
  Bytes device = {};
  Bytes host = {};
  bool nvme = true;
  int depth = 3;
  PlanPolicy policy = PlanPolicy::kAuto;
  int64_t micro_batches = 1;
  bool recompute = false;
  double clip = 0;
  bool declares = true;
  Bytes lease = {};
  int frozen = 0;      // every so many parameters one is; 0: none
  bool asked = false;  // homes are asked for, and links were measured
  GradMode grads = GradMode::kSeparate;
  AccumulationOrder order = AccumulationOrder::kEach;
  int group = 0;  // ranks that share shards; 0: all
  OptimizerSpan span = OptimizerSpan::kGroup;
  bool keeps_shards = false;
};

inline const ForecastCase kForecastCases[] = {
    {.name = "all on the device", .device = MiB(4), .host = MiB(1)},
    {.name = "one rank, host",
     .chunk = KiB(8),
     .device = KiB(64),
     .host = MiB(4),
     .nvme = false},
    {.name = "one rank, three tiers, clipped",
     .dtype = DType::kBF16,
     .chunk = KiB(8),
     .device = KiB(72),
     .host = KiB(96),
     .micro_batches = 2,
     .clip = 1},
    {.name = "two ranks, three tiers, recomputed",
     .world = 2,
     .device = KiB(64),
     .host = KiB(120),
     .recompute = true,
     .clip = 1},
    {.name = "four ranks, planned",
     .world = 4,
     .dtype = DType::kBF16,
     .chunk = KiB(8),
     .device = KiB(64),
     .host = KiB(60),
     .policy = PlanPolicy::kPlanned,
     .micro_batches = 3},
    {.name = "two ranks, frozen parameters, a lease",
     .world = 2,
     .chunk = KiB(6),
     .device = KiB(96),
     .host = KiB(160),
     .policy = PlanPolicy::kPlanned,
     .lease = Bytes(5000),
     .frozen = 3},
    {.name = "on demand, undeclared",
     .world = 2,
     .chunk = KiB(6),
     .device = KiB(128),
     .host = KiB(100),
     .depth = 0,
     .declares = false},
    {.name = "stage 0",
     .world = 2,
     .stage = 0,
     .chunk = KiB(8),
     .device = KiB(160),
     .host = KiB(240),
     .micro_batches = 2,
     .clip = 2},
    {.name = "stage 1",
     .world = 2,
     .stage = 1,
     .dtype = DType::kBF16,
     .chunk = KiB(8),
     .device = KiB(72),
     .host = KiB(96)},
    {.name = "stage 2, frozen",
     .world = 3,
     .stage = 2,
     .chunk = KiB(12),
     .device = KiB(128),
     .host = KiB(64),
     .micro_batches = 2,
     .frozen = 4},
    {.name = "homes by limits and a rule, weighed by time",
     .world = 2,
     .dtype = DType::kBF16,
     .chunk = KiB(8),
     .device = KiB(120),
     .host = KiB(240),
     .policy = PlanPolicy::kPlanned,
     .micro_batches = 2,
     .asked = true},
    {.name = "three ranks, shards kept, two micro-batches",
     .world = 3,
     .chunk = KiB(6),
     .device = KiB(72),
     .host = KiB(200),
     .policy = PlanPolicy::kPlanned,
     .micro_batches = 2,
     .keeps_shards = true},
    {.name = "four ranks, shards kept, frozen and on three tiers",
     .world = 4,
     .chunk = KiB(6),
     .device = KiB(66),
     .host = KiB(40),
     .depth = 1,
     .policy = PlanPolicy::kPlanned,
     .micro_batches = 2,
     .clip = 1,
     .frozen = 3,
     .keeps_shards = true},
    {.name = "gradients in fp32",
     .world = 2,
     .dtype = DType::kBF16,
     .chunk = KiB(8),
     .device = KiB(96),
     .host = KiB(96),
     .micro_batches = 2,
     .clip = 1,
     .grads = GradMode::kFp32},
    {.name = "whole gradients in fp32, reduced once",
     .world = 2,
     .stage = 1,
     .dtype = DType::kBF16,
     .chunk = KiB(8),
     .device = KiB(300),
     .host = KiB(64),
     .micro_batches = 3,
     .frozen = 4,
     .grads = GradMode::kFp32,
     .order = AccumulationOrder::kLast},
    {.name = "four ranks in groups of two",
     .world = 4,
     .dtype = DType::kBF16,
     .chunk = KiB(8),
     .device = KiB(64),
     .host = KiB(60),
     .policy = PlanPolicy::kPlanned,
     .micro_batches = 2,
     .clip = 1,
     .group = 2},
    {.name = "four ranks in groups of two, states over all",
     .world = 4,
     .dtype = DType::kBF16,
     .chunk = KiB(8),
     .device = KiB(64),
     .host = KiB(40),
     .micro_batches = 2,
     .clip = 1,
     .group = 2,
     .span = OptimizerSpan::kWorld},
    {.name = "six ranks in groups of three, on the device",
     .world = 6,
     .chunk = KiB(12),
     .device = MiB(4),
     .host = MiB(1),
     .frozen = 3,
     .group = 3,
     .span = OptimizerSpan::kWorld},
    {.name = "stage 2 in groups of two",
     .world = 4,
     .stage = 2,
     .chunk = KiB(8),
     .device = KiB(96),
     .host = KiB(64),
     .micro_batches = 2,
     .group = 2},
    {.name = "stage 1 in groups of two, states over all",
     .world = 4,
     .stage = 1,
     .dtype = DType::kBF16,
     .chunk = KiB(8),
     .device = KiB(96),
     .host = KiB(64),
     .group = 2,
     .span = OptimizerSpan::kWorld},
    {.name = "gradients over parameters",
     .world = 2,
     .dtype = DType::kBF16,
     .chunk = KiB(8),
     .device = KiB(64),
     .host = KiB(160),
     .clip = 1,
     .grads = GradMode::kReuse},
    {.name = "gradients over parameters, undeclared, planned",
     .world = 2,
     .dtype = DType::kBF16,
     .chunk = KiB(8),
     .device = KiB(72),
     .host = KiB(96),
     .policy = PlanPolicy::kPlanned,
     .declares = false,
     .frozen = 4,
     .grads = GradMode::kReuse},
    {.name = "gradients over homes",
     .world = 2,
     .stage = 1,
     .dtype = DType::kBF16,
     .chunk = KiB(8),
     .device = KiB(160),
     .host = KiB(240),
     .grads = GradMode::kReuse},
    {.name = "gradients over homes, all on the device",
     .world = 2,
     .stage = 0,
     .dtype = DType::kBF16,
     .chunk = KiB(8),
     .device = MiB(4),
     .host = MiB(1),
     .grads = GradMode::kReuse},
};

}  // namespace castor

#endif  // CASTOR_TESTS_COLLECTIVES_ANSWERS_SEAL_FORECAST_CASES_H_
