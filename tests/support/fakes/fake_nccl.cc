// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tests/support/fakes/fake_nccl.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "offload/kernels/reduce.h"

namespace castor {
namespace {

int64_t SizeOf(NcclType type) {
  switch (type) {
    case NcclType::kUint8:
      return 1;
    case NcclType::kFloat32:
      return 4;
    case NcclType::kFloat16:
    case NcclType::kBfloat16:
      return 2;
  }
  return 0;
}

// What is said between GroupStart and GroupEnd; NCCL keeps it by thread too.
struct Grouped {
  struct Part {
    bool send;
    void* data;
    int64_t count;
    int peer;
  };
  bool open = false;
  std::vector<Part> parts;
  NcclType type = NcclType::kUint8;
  NcclComm comm = nullptr;
  CudaStream stream = nullptr;

  void Add(const Part& part, NcclType its_type, NcclComm its_comm,
           CudaStream its_stream) {
    CASTOR_CHECK(open);
    parts.push_back(part);
    type = its_type;
    comm = its_comm;
    stream = its_stream;
  }
};
thread_local Grouped grouped;

}  // namespace

FakeNccl::FakeNccl(FakeCuda* cuda, FakeNcclOptions options)
    : cuda_(cuda), options_(options) {}

FakeNccl::~FakeNccl() { CASTOR_CHECK(comms_.empty()); }

void FakeNccl::FailCall(std::string_view call, int nth, int error) {
  std::lock_guard lock(mutex_);
  const std::string name(call);
  failures_.insert({name, {calls_[name] + nth, error}});
}

void FakeNccl::Hang() {
  std::lock_guard lock(mutex_);
  hangs_ = true;
}

void FakeNccl::HoldAborts(int rank) {
  std::lock_guard lock(mutex_);
  held_ = rank;
}

void FakeNccl::Release() {
  std::lock_guard lock(mutex_);
  held_ = -1;
  released_.notify_all();
}

int FakeNccl::CommAbort(NcclComm comm) {
  {
    std::unique_lock lock(mutex_);
    released_.wait(lock, [&] { return Find(comm)->rank != held_; });
  }
  return End("CommAbort", comm);
}

void FakeNccl::BreakBehindTheCalls(int rank, int error) {
  std::lock_guard lock(mutex_);
  broken_[rank] = error;
}

int64_t FakeNccl::calls(std::string_view call) const {
  std::lock_guard lock(mutex_);
  const auto found = calls_.find(call);
  return found == calls_.end() ? 0 : found->second;
}

int64_t FakeNccl::registered() const {
  std::lock_guard lock(mutex_);
  return registered_;
}

int FakeNccl::Enter(std::string_view call) {
  const std::string name(call);
  const int64_t number = ++calls_[name];
  const auto [first, last] = failures_.equal_range(name);
  for (auto it = first; it != last; ++it) {
    if (it->second.first == number) return it->second.second;
  }
  return kNcclSuccess;
}

std::shared_ptr<FakeNccl::Comm> FakeNccl::Find(NcclComm comm) {
  const auto found = comms_.find(comm);
  CASTOR_CHECK(found != comms_.end());  // else it was given back before
  return found->second;
}

std::string FakeNccl::ErrorText(int result) const {
  return "NCCL error " + std::to_string(result);
}

std::string FakeNccl::LastError(NcclComm) {
  std::lock_guard lock(mutex_);
  return last_error_;
}

void FakeNccl::SayLastError(std::string text) {
  std::lock_guard lock(mutex_);
  last_error_ = std::move(text);
}

int FakeNccl::GetUniqueId(NcclUniqueId* id) {
  std::lock_guard lock(mutex_);
  const int64_t number = next_id_++;
  std::memcpy(id->bytes.data(), &number, sizeof(number));
  return Enter("GetUniqueId");
}

int FakeNccl::CommInitRank(NcclComm* comm, int world, const NcclUniqueId& id,
                           int rank) {
  std::lock_guard lock(mutex_);
  if (const int error = Enter("CommInitRank"); error != kNcclSuccess) {
    return error;
  }
  std::shared_ptr<Group>& group =
      groups_[std::string(id.bytes.data(), id.bytes.size())];
  if (group == nullptr) group = std::make_shared<Group>();
  group->world = world;
  ++group->joined;
  auto made = std::make_shared<Comm>();
  made->group = group;
  made->rank = rank;
  *comm = reinterpret_cast<NcclComm>(next_handle_++);
  comms_[*comm] = std::move(made);
  return kNcclInProgress;
}

int FakeNccl::CommGetAsyncError(NcclComm comm, int* result) {
  std::shared_ptr<Comm> found;
  std::vector<Call> held;
  {
    std::lock_guard lock(mutex_);
    if (const int error = Enter("CommGetAsyncError"); error != kNcclSuccess) {
      return error;
    }
    found = Find(comm);
    if (const auto broken = broken_.find(found->rank);
        broken != broken_.end()) {
      *result = broken->second;
      return kNcclSuccess;
    }
    *result = kNcclInProgress;
    if (found->group->joined < found->group->world) return kNcclSuccess;
    if (found->questions > 0) {
      --found->questions;
      return kNcclSuccess;
    }
    *result = kNcclSuccess;
    held.swap(found->held);
  }
  for (Call& call : held) Queue(found, std::move(call));
  return kNcclSuccess;
}

int FakeNccl::CommFinalize(NcclComm comm) {
  std::lock_guard lock(mutex_);
  if (const int error = Enter("CommFinalize"); error != kNcclSuccess) {
    return error;
  }
  Find(comm)->questions = options_.questions;
  return options_.questions > 0 ? kNcclInProgress : kNcclSuccess;
}

int FakeNccl::End(std::string_view call, NcclComm comm) {
  std::lock_guard lock(mutex_);
  const int error = Enter(call);
  Find(comm)->gone = true;
  comms_.erase(comm);
  return error;
}

int FakeNccl::CommRegister(NcclComm comm, void*, int64_t, void** handle) {
  std::lock_guard lock(mutex_);
  Find(comm);
  if (const int error = Enter("CommRegister"); error != kNcclSuccess) {
    return error;
  }
  *handle = reinterpret_cast<void*>(next_handle_++);
  ++registered_;
  return kNcclSuccess;
}

int FakeNccl::CommDeregister(NcclComm comm, void*) {
  std::lock_guard lock(mutex_);
  Find(comm);
  --registered_;
  return Enter("CommDeregister");
}

int FakeNccl::AllGather(const void* from, void* to, int64_t count,
                        NcclType type, NcclComm comm, CudaStream stream) {
  return Begin(
      "AllGather",
      {Call::Kind::kAllGather, from, to, count, type, {}, {}, comm, stream});
}

int FakeNccl::ReduceScatter(const void* from, void* to, int64_t count,
                            NcclType type, NcclComm comm, CudaStream stream) {
  return Begin("ReduceScatter", {Call::Kind::kReduceScatter,
                                 from,
                                 to,
                                 count,
                                 type,
                                 {},
                                 {},
                                 comm,
                                 stream});
}

int FakeNccl::GroupStart() {
  CASTOR_CHECK(!grouped.open);
  grouped = {};
  grouped.open = true;
  return kNcclSuccess;
}

int FakeNccl::Send(const void* from, int64_t count, NcclType type, int peer,
                   NcclComm comm, CudaStream stream) {
  {
    std::lock_guard lock(mutex_);
    if (const int error = Enter("Send"); error != kNcclSuccess) return error;
  }
  grouped.Add({true, const_cast<void*>(from), count, peer}, type, comm, stream);
  return kNcclSuccess;
}

int FakeNccl::Recv(void* to, int64_t count, NcclType type, int peer,
                   NcclComm comm, CudaStream stream) {
  grouped.Add({false, to, count, peer}, type, comm, stream);
  return kNcclSuccess;
}

int FakeNccl::GroupEnd() {
  CASTOR_CHECK(grouped.open);
  grouped.open = false;
  if (grouped.comm == nullptr) return kNcclSuccess;  // nothing was said
  Call call = {
      .type = grouped.type, .comm = grouped.comm, .stream = grouped.stream};
  for (const Grouped::Part& part : grouped.parts) {
    (part.send ? call.sends : call.receives)
        .push_back({part.data, part.count, part.peer});
  }
  return Begin("GroupEnd", std::move(call));
}

int FakeNccl::Begin(std::string_view name, Call call) {
  std::shared_ptr<Comm> comm;
  {
    std::lock_guard lock(mutex_);
    if (const int error = Enter(name); error != kNcclSuccess) return error;
    comm = Find(call.comm);
    // Castor asks before it calls again.
    CASTOR_CHECK(comm->held.empty());
    if (options_.questions > 0) {
      comm->questions = options_.questions;
      comm->held.push_back(std::move(call));
      return kNcclInProgress;
    }
  }
  Queue(comm, std::move(call));
  return kNcclSuccess;
}

void FakeNccl::Queue(const std::shared_ptr<Comm>& comm, Call call) {
  std::shared_ptr<Meeting> meeting;
  const CudaStream stream = call.stream;
  {
    std::lock_guard lock(mutex_);
    std::shared_ptr<Meeting>& slot = comm->group->meetings[comm->next++];
    if (slot == nullptr) {
      slot = std::make_shared<Meeting>();
      slot->calls.resize(static_cast<size_t>(comm->group->world));
      slot->arrived.resize(static_cast<size_t>(comm->group->world));
    }
    meeting = slot;
    meeting->calls[static_cast<size_t>(comm->rank)] = std::move(call);
  }
  cuda_->Launch(stream, nullptr, [this, comm, meeting] {
    std::lock_guard lock(mutex_);
    if (comm->gone || meeting->moved) return true;
    meeting->arrived[static_cast<size_t>(comm->rank)] = true;
    if (hangs_ || !std::ranges::all_of(meeting->arrived,
                                       [](bool here) { return here; })) {
      return false;
    }
    Move(*comm->group, *meeting);
    meeting->moved = true;
    return true;
  });
}

void FakeNccl::CopyBytes(void* to, const void* from, int64_t size) const {
  std::memmove(cuda_->Reach(to), cuda_->Reach(from), static_cast<size_t>(size));
}

void FakeNccl::Move(const Group& group, const Meeting& meeting) const {
  const Call& first = meeting.calls.front();
  for (const Call& call : meeting.calls) {
    CASTOR_CHECK(call.kind == first.kind && call.type == first.type);
    CASTOR_CHECK_EQ(call.count, first.count);
  }
  const int64_t element = SizeOf(first.type);
  switch (first.kind) {
    case Call::Kind::kAllGather:
      for (const Call& call : meeting.calls) {
        for (int rank = 0; rank < group.world; ++rank) {
          CopyBytes(
              static_cast<std::byte*>(call.to) + rank * call.count * element,
              meeting.calls[static_cast<size_t>(rank)].from,
              call.count * element);
        }
      }
      return;
    case Call::Kind::kReduceScatter:
      return MoveReduction(group, meeting);
    case Call::Kind::kExchange:
      for (int rank = 0; rank < group.world; ++rank) {
        for (const Transfer& receive :
             meeting.calls[static_cast<size_t>(rank)].receives) {
          const auto& sends =
              meeting.calls[static_cast<size_t>(receive.peer)].sends;
          const auto send = std::ranges::find(sends, rank, &Transfer::peer);
          CASTOR_CHECK(send != sends.end());
          CASTOR_CHECK_EQ(send->count, receive.count);
          CopyBytes(receive.data, send->data, receive.count * element);
        }
      }
  }
}

void FakeNccl::MoveReduction(const Group& group, const Meeting& meeting) const {
  const Call& first = meeting.calls.front();
  const DType dtype = first.type == NcclType::kFloat32   ? DType::kF32
                      : first.type == NcclType::kFloat16 ? DType::kF16
                                                         : DType::kBF16;
  for (int rank = 0; rank < group.world; ++rank) {
    std::vector<const void*> sources;
    for (int other = group.world - 1; other >= 0; --other) {
      sources.push_back(
          cuda_->Reach(static_cast<const std::byte*>(
                           meeting.calls[static_cast<size_t>(other)].from) +
                       rank * first.count * SizeOf(first.type)));
    }
    void* const to = meeting.calls[static_cast<size_t>(rank)].to;
    if (group.world == 1) {
      CopyBytes(to, sources[0], first.count * SizeOf(first.type));
    } else {
      SumInOrder(sources, dtype, first.count, cuda_->Reach(to));
    }
  }
}

}  // namespace castor
