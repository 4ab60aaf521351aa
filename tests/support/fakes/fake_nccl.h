// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_FAKES_FAKE_NCCL_H_
#define CASTOR_TESTS_SUPPORT_FAKES_FAKE_NCCL_H_

// NCCL behind its call table, over the streams of a FakeCuda, for ranks that
// are threads of one process and share one fake. Like NCCL it moves data when
// every rank's stream has come to an operation and not before, matches
// operations by their order on a communicator, and says "in progress" first.
// Unlike NCCL it ends the test when ranks call differently: that is what
// Castor's order check is there to prevent. Its own reduction adds in the
// opposite order of ranks. Calls fail on cue; operations hang on cue, and
// errors come behind the calls. Thread-safe.

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/nccl/nccl_calls.h"
#include "tests/support/fakes/fake_cuda.h"

namespace castor {

struct FakeNcclOptions {
  int version = 22809;
  bool can_register = true;
  // Questions for the state of a communicator that are answered with "in
  // progress" after every call, before the call takes effect.
  int questions = 1;
};

class FakeNccl final : public NcclCalls {
 public:
  explicit FakeNccl(FakeCuda* cuda, FakeNcclOptions options = {});
  // REQUIRES: every communicator was destroyed or aborted.
  ~FakeNccl() override;

  // The `nth` call of this name, counted from 1 from now on, returns `error`.
  void FailCall(std::string_view call, int nth, int error);
  // What NCCL says of errors from now on.
  void SayLastError(std::string text);
  // From now on no operation moves anything until its communicator is aborted.
  void Hang();
  // Aborts of this rank's communicators take until Release: its device is still
  // at work on what others gave it.
  void HoldAborts(int rank);
  void Release();
  // What communicators of `rank` answer from now on when asked for errors.
  void BreakBehindTheCalls(int rank, int error);
  int64_t calls(std::string_view call) const;
  int64_t aborted() const { return calls("CommAbort"); }
  // Registrations that were not taken back.
  int64_t registered() const;

  int version() const override { return options_.version; }
  std::string ErrorText(int result) const override;
  std::string LastError(NcclComm comm) override;
  int GetUniqueId(NcclUniqueId* id) override;
  int CommInitRank(NcclComm* comm, int world, const NcclUniqueId& id,
                   int rank) override;
  int CommGetAsyncError(NcclComm comm, int* result) override;
  int CommFinalize(NcclComm comm) override;
  int CommDestroy(NcclComm comm) override { return End("CommDestroy", comm); }
  int CommAbort(NcclComm comm) override;
  bool can_register() const override { return options_.can_register; }
  int CommRegister(NcclComm comm, void* data, int64_t size,
                   void** handle) override;
  int CommDeregister(NcclComm comm, void* handle) override;
  int AllGather(const void* from, void* to, int64_t count, NcclType type,
                NcclComm comm, CudaStream stream) override;
  int ReduceScatter(const void* from, void* to, int64_t count, NcclType type,
                    NcclComm comm, CudaStream stream) override;
  int GroupStart() override;
  int GroupEnd() override;
  int Send(const void* from, int64_t count, NcclType type, int peer,
           NcclComm comm, CudaStream stream) override;
  int Recv(void* to, int64_t count, NcclType type, int peer, NcclComm comm,
           CudaStream stream) override;

 private:
  struct Transfer {
    void* data = nullptr;
    int64_t count = 0;
    int peer = 0;
  };
  // What one rank calls.
  struct Call {
    enum class Kind { kAllGather, kReduceScatter, kExchange };
    Kind kind = Kind::kExchange;
    const void* from = nullptr;
    void* to = nullptr;
    int64_t count = 0;
    NcclType type = NcclType::kUint8;
    std::vector<Transfer> sends = {};
    std::vector<Transfer> receives = {};
    NcclComm comm = nullptr;
    CudaStream stream = nullptr;
  };
  // What all do.
  struct Meeting {
    std::vector<Call> calls;    // by rank
    std::vector<bool> arrived;  // by rank: its stream is there
    bool moved = false;
  };
  struct Group {
    int world = 0;
    int joined = 0;
    std::map<int64_t, std::shared_ptr<Meeting>> meetings;
  };
  struct Comm {
    std::shared_ptr<Group> group;
    int rank = 0;
    int64_t next = 0;   // number of its next operation
    int questions = 0;  // left to be answered with "in progress"
    bool gone = false;
    std::vector<Call> held;  // to be queued after these
  };

  // Counts the call; an error to return, or kNcclSuccess.
  int Enter(std::string_view call);
  std::shared_ptr<Comm> Find(NcclComm comm);
  int End(std::string_view call, NcclComm comm);
  int Begin(std::string_view name, Call call);
  // Queues what a communicator holds. Without the lock.
  void Queue(const std::shared_ptr<Comm>& comm, Call call);
  void CopyBytes(void* to, const void* from, int64_t size) const;
  void Move(const Group& group, const Meeting& meeting) const;
  void MoveReduction(const Group& group, const Meeting& meeting) const;

  FakeCuda* const cuda_;
  const FakeNcclOptions options_;
  mutable std::mutex mutex_;
  // All guarded by mutex_.
  std::map<NcclComm, std::shared_ptr<Comm>> comms_;
  std::map<std::string, std::shared_ptr<Group>> groups_;  // by id
  std::map<std::string, int64_t, std::less<>> calls_;
  std::multimap<std::string, std::pair<int64_t, int>, std::less<>> failures_;
  std::string last_error_ = "as the test wanted it";
  std::map<int, int> broken_;  // rank to error
  bool hangs_ = false;
  int held_ = -1;  // the rank whose aborts are
  std::condition_variable released_;
  int64_t registered_ = 0;
  uintptr_t next_handle_ = 0x2000;
  int64_t next_id_ = 1;
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_FAKES_FAKE_NCCL_H_
