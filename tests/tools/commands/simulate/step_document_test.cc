// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/simulate/step_document.h"

#include <optional>

#include "collectives/memory/memory_plan.h"
#include "gtest/gtest.h"

namespace castor {
namespace {

TEST(StepDocumentTest, WhatDeadlinesLackIsNamedAndNothingElse) {
  MemoryPlan plan;
  plan.problem.prefetch.depth = 3;
  EXPECT_EQ(DeadlinesSentence(std::nullopt, plan),
            "3 ahead, not by deadlines: no machine tells how fast links are, "
            "and no compute time of a step is declared; give --machine and "
            "--compute");
  plan.problem.step_compute_ns = 5;
  EXPECT_EQ(DeadlinesSentence(std::nullopt, plan),
            "3 ahead, not by deadlines: no machine tells how fast links are; "
            "give --machine");
  plan.unknown_links = "nvme_read, all_gather";
  EXPECT_EQ(DeadlinesSentence(std::nullopt, plan),
            "3 ahead, not by deadlines: the machine does not know nvme_read, "
            "all_gather; measure nvme_read, all_gather with castor probe");
  plan.problem.step_compute_ns = 0;
  EXPECT_EQ(DeadlinesSentence(std::nullopt, plan),
            "3 ahead, not by deadlines: the machine does not know nvme_read, "
            "all_gather, and no compute time of a step is declared; measure "
            "nvme_read, all_gather with castor probe and give --compute");
  plan.unknown_links.clear();
  plan.problem.fetch_ns = {{1, 2, 3}};
  EXPECT_EQ(DeadlinesSentence(std::nullopt, plan),
            "3 ahead, not by deadlines: no compute time of a step is declared; "
            "give --compute");
}

}  // namespace
}  // namespace castor
