// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/nvme/nvme_option.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "chunk/base/units.h"
#include "gtest/gtest.h"

namespace castor {
namespace {

TEST(NvmeLimitTest, IsTheSumInStripesUnlessADriveHasNone) {
  std::vector<NvmeOption> drives = {{"/a", GiB(1) + KiB(4)}};
  EXPECT_EQ(NvmeLimit(drives), GiB(1) + KiB(4));
  drives.push_back({"/b", MiB(4) - KiB(4)});
  EXPECT_EQ(NvmeLimit(drives), GiB(1) + MiB(3));
  drives.push_back({"/c", Bytes(INT64_MAX)});
  EXPECT_EQ(NvmeLimit(drives), std::nullopt) << "more than can be counted";
  drives.pop_back();
  drives.push_back({"/c", std::nullopt});
  EXPECT_EQ(NvmeLimit(drives), std::nullopt);
}

}  // namespace
}  // namespace castor
