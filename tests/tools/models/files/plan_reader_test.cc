// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/models/files/plan_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/layout_file.h"
#include "chunk/param_spec.h"
#include "tests/support/status_matchers.h"
#include "tests/tools/models/model_files.h"

namespace castor {
namespace {

using testing::HasSubstr;

TEST(PlanReaderTest, ReadsAPlanWithTheFilesThatItNames) {
  const std::vector<ParamSpec> params = {{"w", {200}, DType::kF32, true}};
  const Elements sizes[] = {Elements(256)};
  const ChunkLayout layout = PackChunks(params, sizes, {}).value();
  TempFolder folder;
  folder.Write("plans/here/layout.json", WriteLayout(params, layout).value());
  folder.Write("plans/machine.json",
               R"({"schema": "castor.machine/1",)"
               R"( "memory": {"bytes_per_second": 5000000}})");
  PlanFile plan;
  plan.model = "m";
  plan.engine.max_chunk = MiB(1);
  plan.files.layout = "here/layout.json";
  plan.files.machine = "machine.json";
  const PlanFile loaded =
      ReadPlanFile(folder.Write("plans/plan.json", WritePlan(plan))).value();
  ASSERT_NE(loaded.engine.layout, nullptr);
  EXPECT_EQ(loaded.engine.layout->params.size(), 1u);
  EXPECT_EQ(loaded.engine.machine->memory->bytes_per_second, 5000000);

  EXPECT_THAT(
      ReadPlanFile(folder.Write("elsewhere.json", WritePlan(plan))).status(),
      StatusIs(ErrorCode::kInvalidArgument, HasSubstr("layout.json")));
  EXPECT_THAT(ReadPlanFile(folder.Write("broken.json", "{}")).status(),
              StatusIs(ErrorCode::kMalformed, HasSubstr("broken.json")));
  EXPECT_THAT(ReadPlanFile(folder.At("absent.json")).status(),
              StatusIs(ErrorCode::kInvalidArgument));
}

}  // namespace
}  // namespace castor
