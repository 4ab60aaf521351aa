// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_NCCL_NCCL_CALLS_H_
#define CASTOR_COLLECTIVES_NCCL_NCCL_CALLS_H_

// Every call that Castor makes of NCCL, as one table: nccl_library.h binds it
// to the library that is found at run time, a fake stands in for it in tests
// (tests/support/fakes/fake_nccl.h). No build needs nccl.h: of NCCL's ABI
// Castor uses a handle, 128 bytes, and a few numbers that no version has
// changed. Tests compare them with a toolkit's header where there is one.
//
// Each call returns a ncclResult_t. Communicators are non-blocking: a call may
// return kNcclInProgress, and what it does is done when CommGetAsyncError says
// so. One thread at a time per communicator; the calling thread's current
// device is the communicator's.

#include <array>
#include <cstdint>
#include <string>

#include "offload/cuda/cuda_calls.h"

namespace castor {

using NcclComm = void*;  // ncclComm_t

struct NcclUniqueId {
  std::array<char, 128> bytes = {};
};

inline constexpr int kNcclSuccess = 0;
inline constexpr int kNcclUnhandledCudaError = 1;
inline constexpr int kNcclSystemError = 2;
inline constexpr int kNcclInternalError = 3;
inline constexpr int kNcclInvalidArgument = 4;
inline constexpr int kNcclInvalidUsage = 5;
inline constexpr int kNcclRemoteError = 6;
inline constexpr int kNcclInProgress = 7;

// ncclDataType_t, as far as Castor sends it.
enum class NcclType : int {
  kUint8 = 1,
  kFloat16 = 6,
  kFloat32 = 7,
  kBfloat16 = 9
};

class NcclCalls {
 public:
  virtual ~NcclCalls() = default;

  // Major * 10000 + minor * 100 + patch.
  virtual int version() const = 0;
  // "remote process exited or there was a network error (6)".
  virtual std::string ErrorText(int result) const = 0;
  // What NCCL says of the last error of `comm`, or empty.
  virtual std::string LastError(NcclComm comm) = 0;

  virtual int GetUniqueId(NcclUniqueId* id) = 0;
  // Non-blocking. `comm` is set at once.
  virtual int CommInitRank(NcclComm* comm, int world, const NcclUniqueId& id,
                           int rank) = 0;
  virtual int CommGetAsyncError(NcclComm comm, int* result) = 0;
  virtual int CommFinalize(NcclComm comm) = 0;
  virtual int CommDestroy(NcclComm comm) = 0;
  // Ends what runs on the device too; `comm` is gone after it.
  virtual int CommAbort(NcclComm comm) = 0;

  // Whether the two below exist (NCCL 2.19).
  virtual bool can_register() const = 0;
  virtual int CommRegister(NcclComm comm, void* data, int64_t size,
                           void** handle) = 0;
  virtual int CommDeregister(NcclComm comm, void* handle) = 0;

  // Counts are per rank.
  virtual int AllGather(const void* from, void* to, int64_t count,
                        NcclType type, NcclComm comm, CudaStream stream) = 0;
  // Sums, in NCCL's own order.
  virtual int ReduceScatter(const void* from, void* to, int64_t count,
                            NcclType type, NcclComm comm,
                            CudaStream stream) = 0;
  virtual int GroupStart() = 0;
  virtual int GroupEnd() = 0;
  virtual int Send(const void* from, int64_t count, NcclType type, int peer,
                   NcclComm comm, CudaStream stream) = 0;
  virtual int Recv(void* to, int64_t count, NcclType type, int peer,
                   NcclComm comm, CudaStream stream) = 0;
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_NCCL_NCCL_CALLS_H_
