// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Stores on machines that refuse what makes them fast: each works, and says
// once what it does without. (O_DIRECT: nvme_store_process_test.cc.)

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/event.h"
#include "offload/nvme/nvme_store.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/without_uring.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class NvmeStoreFallbackTest : public testing::Test {
 protected:
  // A store as one of several ranks makes it, with its slab, which comes back
  // with what was written: how that ended.
  Status UseAStore(NvmeStoreStats* stats) {
    AlignedBytes slab(MiB(4)), copy(MiB(4));
    auto store =
        NvmeStore::Create({.drives = {{dir_.path(), MiB(4)}}, .log = &log_});
    if (!store.ok()) return store.status();
    (*store)->RegisterMemory(slab.span());
    FillRandom(slab.span(), 1);
    FillRandom(copy.span(), 1);
    CASTOR_RETURN_IF_ERROR(
        (*store)->Write(Bytes(0), slab.span(), Event(), "w").Wait());
    FillRandom(slab.span(), 2);
    CASTOR_RETURN_IF_ERROR(
        (*store)->Read(Bytes(0), slab.span(), Event(), "r").Wait());
    *stats = (*store)->stats();
    return SameBytes(slab.span(), copy.span()) ? OkStatus()
                                               : DataLoss("other bytes");
  }

  TempDir dir_;
  std::vector<std::string> said_;
  Log log_{
      [this](LogLevel, std::string_view line) { said_.emplace_back(line); }};
};

TEST_F(NvmeStoreFallbackTest, WithoutIoUringThreadsMoveTheBytes) {
  NvmeStoreStats stats;
  std::vector<Status> ended;
  const bool filtered = WithoutUring(ENOSYS, [&] {
    for (int rank = 0; rank < 2; ++rank) ended.push_back(UseAStore(&stats));
  });
  if (!filtered) GTEST_SKIP() << "the kernel allows no seccomp filter";
  EXPECT_THAT(ended, ElementsAre(IsOk(), IsOk()));
  EXPECT_EQ(stats.queue, "threads");
  EXPECT_THAT(said_, ElementsAre(AllOf(HasSubstr("blocking threads"),
                                       HasSubstr("Linux 5.6"))));
}

TEST_F(NvmeStoreFallbackTest, BelowTheMemlockLimitMemoryIsNotRegistered) {
  NvmeStoreStats stats;
  std::vector<Status> ended;
  const bool limited = WithMemlockLimit(64 << 10, [&] {
    for (int rank = 0; rank < 2; ++rank) ended.push_back(UseAStore(&stats));
  });
  if (!limited) GTEST_SKIP() << "the limit of locked memory cannot be set";
  EXPECT_THAT(ended, ElementsAre(IsOk(), IsOk()));
  EXPECT_EQ(stats.drives[0].registered, Bytes(0));
  if (stats.queue != "io_uring") GTEST_SKIP() << "no io_uring here";
  EXPECT_THAT(said_,
              ElementsAre(AllOf(HasSubstr("pin their memory each time"),
                                HasSubstr("4194304 B"), HasSubstr("65536 B"),
                                HasSubstr("ulimit -l"))));
}

TEST_F(NvmeStoreFallbackTest, WhereNothingIsRefusedNothingIsSaid) {
  NvmeStoreStats stats;
  ASSERT_THAT(UseAStore(&stats), IsOk());
  if (stats.queue != "io_uring" || !stats.direct) {
    GTEST_SKIP() << "this machine refuses something";
  }
  EXPECT_THAT(said_, testing::IsEmpty());
  EXPECT_EQ(stats.drives[0].registered, MiB(4));
}

}  // namespace
}  // namespace castor
