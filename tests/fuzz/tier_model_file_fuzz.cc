// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "placement/machine/step_cost.h"
#include "placement/machine/tier_model_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace castor;  // NOLINT
  const auto model = ParseTierModel(
      std::string_view(reinterpret_cast<const char*>(data), size));
  if (!model.ok()) {
    CASTOR_CHECK_EQ(ExitCode(model.status().code()), 4);
    CASTOR_CHECK(!model.status().message().empty());
    return 0;
  }
  const auto again = ParseTierModel(FormatTierModel(*model));
  CASTOR_CHECK(again.ok() && *again == *model);
  // Its numbers are fit to reckon with.
  const StepCost cost = ModelStep(*model, {1000, GiB(1000), true}, 1024);
  for (const auto& seconds : cost.link_seconds) {
    CASTOR_CHECK(!seconds || *seconds > 0);
  }
  return 0;
}
