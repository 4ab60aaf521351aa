// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/mpi/mpi_session.h"

#include <fmt/format.h>
#include <mpi.h>

#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "collectives/mpi/mpi_calls.h"

namespace castor {
namespace {

using internal::MpiStatus;

std::string_view ThreadLevelName(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    default:
      return "an unknown level";
  }
}

Status TooFewThreads(bool began, int level) {
  if (began) {
    return Unavailable(fmt::format(
        "this MPI grants {}, and Castor's communicators call it from threads "
        "of their own (MPI_THREAD_MULTIPLE): use an MPI built with support for "
        "threads, as Debian's Open MPI is",
        ThreadLevelName(level)));
  }
  return Unavailable(fmt::format(
      "the program began MPI with {}, and Castor's communicators call it from "
      "threads of their own: begin it with MPI_Init_thread and "
      "MPI_THREAD_MULTIPLE, or let MpiSession begin it",
      ThreadLevelName(level)));
}

// What MPI may still write to, because ranks did not answer when their world
// ended, stays until the process ends.
void KeepForEver(std::shared_ptr<internal::MpiCalls> calls) {
  static auto* const kept =
      new std::vector<std::shared_ptr<internal::MpiCalls>>();
  kept->push_back(std::move(calls));
}

Status WaitForOthers(MPI_Comm comm, int64_t wait_ns) {
  MPI_Request met = MPI_REQUEST_NULL;
  CASTOR_RETURN_IF_ERROR(MpiStatus(MPI_Ibarrier(comm, &met), "MPI_Ibarrier"));
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    int done = 0;
    CASTOR_RETURN_IF_ERROR(
        MpiStatus(MPI_Test(&met, &done, MPI_STATUS_IGNORE), "MPI_Test"));
    if (done != 0) return OkStatus();
    const std::chrono::nanoseconds waited =
        std::chrono::steady_clock::now() - begin;
    if (wait_ns > 0 && waited.count() > wait_ns) {
      return Aborted(fmt::format("not every rank has come to the end in {} s",
                                 static_cast<double>(wait_ns) * 1e-9));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

Result<std::unique_ptr<MpiSession>> MpiSession::Start() {
  int begun = 0;
  int level = MPI_THREAD_SINGLE;
  CASTOR_RETURN_IF_ERROR(MpiStatus(MPI_Initialized(&begun), "MPI_Initialized"));
  const bool begins = begun == 0;
  if (begins) {
    CASTOR_RETURN_IF_ERROR(MpiStatus(
        MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level),
        "MPI_Init_thread"));
  } else {
    CASTOR_RETURN_IF_ERROR(
        MpiStatus(MPI_Query_thread(&level), "MPI_Query_thread"));
  }
  if (level != MPI_THREAD_MULTIPLE) {
    if (begins) {
      CASTOR_RETURN_IF_ERROR(MpiStatus(MPI_Finalize(), "MPI_Finalize"));
    }
    return TooFewThreads(begins, level);
  }
  auto session = std::unique_ptr<MpiSession>(new MpiSession(begins));
  CASTOR_RETURN_IF_ERROR(MpiStatus(
      MPI_Comm_rank(MPI_COMM_WORLD, &session->rank_), "MPI_Comm_rank"));
  CASTOR_RETURN_IF_ERROR(MpiStatus(
      MPI_Comm_size(MPI_COMM_WORLD, &session->world_), "MPI_Comm_size"));
  MPI_Comm machine = MPI_COMM_NULL;
  CASTOR_RETURN_IF_ERROR(
      MpiStatus(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED,
                                    session->rank_, MPI_INFO_NULL, &machine),
                "MPI_Comm_split_type"));
  CASTOR_RETURN_IF_ERROR(MpiStatus(
      MPI_Comm_rank(machine, &session->local_rank_), "MPI_Comm_rank"));
  CASTOR_RETURN_IF_ERROR(MpiStatus(
      MPI_Comm_size(machine, &session->local_world_), "MPI_Comm_size"));
  CASTOR_RETURN_IF_ERROR(MpiStatus(MPI_Comm_free(&machine), "MPI_Comm_free"));
  return session;
}

MpiSession::~MpiSession() { Close().IgnoreError(); }

Result<std::shared_ptr<internal::MpiCalls>> MpiSession::Connect() {
  MPI_Comm comm = MPI_COMM_NULL;
  CASTOR_RETURN_IF_ERROR(
      MpiStatus(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup"));
  MPI_Comm notes = MPI_COMM_NULL;
  CASTOR_RETURN_IF_ERROR(
      MpiStatus(MPI_Comm_dup(MPI_COMM_WORLD, &notes), "MPI_Comm_dup"));
  calls_.push_back(std::make_shared<internal::MpiCalls>(comm, notes));
  return calls_.back();
}

Status MpiSession::Close(int64_t wait_ns) {
  if (closed_) return OkStatus();
  closed_ = true;
  Status reason;
  for (std::shared_ptr<internal::MpiCalls>& calls : calls_) {
    if (!calls->broken()) continue;
    reason = Aborted("ranks did not answer the end of their world");
    KeepForEver(std::move(calls));
  }
  // MPI would wait for ranks that do not come.
  if (reason.ok() && !calls_.empty()) {
    reason = WaitForOthers(calls_.front()->comm(), wait_ns);
  }
  if (!reason.ok()) return reason;
  for (const auto& calls : calls_) CASTOR_RETURN_IF_ERROR(calls->Free());
  calls_.clear();
  return began_ ? MpiStatus(MPI_Finalize(), "MPI_Finalize") : OkStatus();
}

}  // namespace castor
