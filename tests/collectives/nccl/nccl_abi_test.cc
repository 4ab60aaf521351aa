// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What Castor knows of NCCL's ABI without its header, against that header,
// where the toolkit has it: most of it when this is compiled.

#include "collectives/nccl/nccl_config.h"
#include "gtest/gtest.h"

#if __has_include(<nccl.h>)

#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "collectives/nccl/nccl_calls.h"

namespace castor {
namespace {

static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
static_assert(sizeof(NcclComm) == sizeof(ncclComm_t));
static_assert(kNcclSuccess == ncclSuccess);
static_assert(kNcclUnhandledCudaError == ncclUnhandledCudaError);
static_assert(kNcclSystemError == ncclSystemError);
static_assert(kNcclInternalError == ncclInternalError);
static_assert(kNcclInvalidArgument == ncclInvalidArgument);
static_assert(kNcclInvalidUsage == ncclInvalidUsage);
static_assert(kNcclRemoteError == ncclRemoteError);
static_assert(kNcclInProgress == ncclInProgress);
static_assert(static_cast<int>(NcclType::kUint8) == ncclUint8);
static_assert(static_cast<int>(NcclType::kFloat16) == ncclFloat16);
static_assert(static_cast<int>(NcclType::kFloat32) == ncclFloat32);
static_assert(static_cast<int>(NcclType::kBfloat16) == ncclBfloat16);
static_assert(ncclSum == 0);
static_assert(sizeof(ncclDataType_t) == sizeof(int));
static_assert(sizeof(ncclResult_t) == sizeof(int));

static_assert(offsetof(NcclConfig, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(NcclConfig, blocking) ==
              offsetof(ncclConfig_t, blocking));
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));

// The parameters of the calls, as nccl_library.cc declares them.
template <typename... Parameters>
using Call = ncclResult_t (*)(Parameters...);
static_assert(
    std::is_same_v<decltype(&ncclCommInitRankConfig),
                   Call<ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*>>);
static_assert(std::is_same_v<decltype(&ncclCommGetAsyncError),
                             Call<ncclComm_t, ncclResult_t*>>);
static_assert(std::is_same_v<decltype(&ncclCommRegister),
                             Call<const ncclComm_t, void*, size_t, void**>>);
static_assert(std::is_same_v<decltype(&ncclAllGather),
                             Call<const void*, void*, size_t, ncclDataType_t,
                                  ncclComm_t, cudaStream_t>>);
static_assert(std::is_same_v<decltype(&ncclReduceScatter),
                             Call<const void*, void*, size_t, ncclDataType_t,
                                  ncclRedOp_t, ncclComm_t, cudaStream_t>>);
static_assert(std::is_same_v<decltype(&ncclSend),
                             Call<const void*, size_t, ncclDataType_t, int,
                                  ncclComm_t, cudaStream_t>>);
static_assert(
    std::is_same_v<decltype(&ncclRecv), Call<void*, size_t, ncclDataType_t, int,
                                             ncclComm_t, cudaStream_t>>);

TEST(NcclAbiTest, TheConfigurationIsMarkedAsNcclMarksIt) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(NcclConfig().magic, theirs.magic);
  EXPECT_LE(NcclConfig().version, theirs.version);
}

}  // namespace
}  // namespace castor

#else

TEST(NcclAbiTest, TheConfigurationIsMarkedAsNcclMarksIt) {
  GTEST_SKIP() << "the toolkit has no nccl.h";
}

#endif
