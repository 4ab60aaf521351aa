// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Bus bandwidth of an all-gather and a reduce-scatter per chunk size, through
// Castor's communicator and through MPI's own calls, in turns:
//
//   mpirun --bind-to none -n 2 bazel-bin/tools/bench/mpi_benchmark
//
// A chunk of C bytes on W ranks that takes t seconds has a bus bandwidth of
// (W - 1) / W x C / t: what every rank sends and receives. Chunks are in fp32
// and in place; MPI's sum is its MPI_SUM. Rank 0 prints medians.

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/base/units_text.h"
#include "collectives/communicator.h"
#include "collectives/mpi/mpi_communicator.h"
#include "collectives/mpi/mpi_session.h"
#include "offload/executor.h"
#include "offload/lane.h"
#include "tools/cli/console.h"
#include "tools/cli/flags.h"
#include "tools/cli/text_table.h"
#include "tools/measure/samples.h"

namespace castor {
namespace {

constexpr char kName[] = "mpi_benchmark";

struct Flags {
  int64_t rounds = 15;
  Bytes least = KiB(64);
  Bytes most = MiB(64);
};

// What is measured, in the order of the columns.
enum class Way : size_t {
  kMpiGather,
  kCastorGather,
  kMpiReduce,
  kCastorReduce,
};
constexpr size_t kWays = 4;

class Bench {
 public:
  Bench(int rank, int world, Communicator* comm, Bytes most)
      : rank_(rank),
        world_(world),
        comm_(comm),
        lane_("bench", &pool_),
        chunk_(static_cast<size_t>(most.count()) / sizeof(float), 1.0f) {}

  // Seconds of one operation on a chunk of that size, of as many back to back
  // as take a while.
  Result<double> Once(Way way, Bytes size) {
    const int64_t shard =
        size.count() / static_cast<int64_t>(sizeof(float)) / world_;
    const auto times =
        static_cast<int>(std::clamp<int64_t>(MiB(32) / size, 2, 64));
    CASTOR_CHECK_EQ(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) Queue(way, shard);
    CASTOR_RETURN_IF_ERROR(lane_.Drain());
    const std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - begin;
    return took.count() / times;
  }

 private:
  void Queue(Way way, int64_t shard) {
    float* const slice = chunk_.data() + shard * rank_;
    const auto count = static_cast<int>(shard);
    const CollectiveTag tag = {ChunkId(0), -1, "bench"};
    switch (way) {
      case Way::kMpiGather:
        CASTOR_CHECK_EQ(MPI_Allgather(MPI_IN_PLACE, 0, MPI_FLOAT, chunk_.data(),
                                      count, MPI_FLOAT, MPI_COMM_WORLD),
                        MPI_SUCCESS);
        return;
      case Way::kMpiReduce:
        CASTOR_CHECK_EQ(
            MPI_Reduce_scatter_block(MPI_IN_PLACE, chunk_.data(), count,
                                     MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
            MPI_SUCCESS);
        return;
      case Way::kCastorGather:
        return comm_->AllGather(lane_, slice, chunk_.data(), Elements(shard),
                                DType::kF32, tag);
      case Way::kCastorReduce:
        return comm_->ReduceScatter(lane_, chunk_.data(), slice,
                                    Elements(shard), DType::kF32, tag);
    }
  }

  const int rank_;
  const int world_;
  Communicator* const comm_;
  ThreadPool pool_{1};
  WorkerLane lane_;
  std::vector<float> chunk_;
};

Result<std::string> Measure(const Flags& flags, const MpiSession& session,
                            Communicator* comm) {
  const int world = session.world();
  Bench bench(session.rank(), world, comm, flags.most);
  std::vector<Bytes> sizes;
  for (Bytes size = flags.least; size <= flags.most; size = size * int64_t{4}) {
    sizes.push_back(RoundDown(size, Bytes(4 * world)));
  }
  TextTable table({{"chunk", TextTable::Align::kRight},
                   {"all-gather: MPI"},
                   {"Castor"},
                   {"of MPI's"},
                   {"reduce-scatter: MPI"},
                   {"Castor"},
                   {"of MPI's"}});
  for (const Bytes size : sizes) {
    std::array<std::vector<double>, kWays> seconds;
    // The first round warms up.
    for (int64_t round = 0; round <= flags.rounds; ++round) {
      for (size_t way = 0; way < kWays; ++way) {
        CASTOR_ASSIGN_OR_RETURN(const double one,
                                bench.Once(static_cast<Way>(way), size));
        if (round > 0) seconds[way].push_back(one);
      }
    }
    std::array<double, kWays> rates;
    for (size_t way = 0; way < kWays; ++way) {
      rates[way] = static_cast<double>(size.count()) * (world - 1) / world /
                   MedianOf(seconds[way]) * 1e-9;
    }
    const auto rate = [&](Way way) {
      return fmt::format("{:.2f} GB/s", rates[static_cast<size_t>(way)]);
    };
    const auto share = [&](Way castor, Way mpi) {
      return fmt::format("{:.0f} %", 100 * rates[static_cast<size_t>(castor)] /
                                         rates[static_cast<size_t>(mpi)]);
    };
    table.AddRow(
        {FormatSize(size), rate(Way::kMpiGather), rate(Way::kCastorGather),
         share(Way::kCastorGather, Way::kMpiGather), rate(Way::kMpiReduce),
         rate(Way::kCastorReduce), share(Way::kCastorReduce, Way::kMpiReduce)});
  }
  return table.Render(Emphasis::kNone);
}

Status Main(const std::vector<std::string>& args, const Console& console) {
  CommandLine line(kName,
                   "Collectives through Castor and through MPI's own calls.");
  Flags flags;
  AddIntFlag(line.app(), "--rounds", &flags.rounds, 1, 1000,
             "samples of each (default 15)");
  AddSizeFlag(line.app(), "--least", &flags.least,
              "the smallest chunk (default 64KiB)");
  AddSizeFlag(line.app(), "--most", &flags.most,
              "the largest chunk (default 64MiB); sizes go up by 4");
  CASTOR_ASSIGN_OR_RETURN(const ParseOutcome parsed,
                          ParseFlags(line.app(), args));
  if (parsed == ParseOutcome::kHelpAsked) {
    console.out << line.Help();
    return FlushOutput(console);
  }
  CASTOR_ASSIGN_OR_RETURN(const std::unique_ptr<MpiSession> session,
                          MpiSession::Start());
  if (session->world() < 2) {
    return InvalidArgument(
        "one rank exchanges nothing: start it by mpirun with two at least");
  }
  if (flags.least < KiB(1) || flags.least > flags.most) {
    return InvalidArgument(
        "--least must be at least 1KiB and no more than --most");
  }
  CASTOR_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> comm,
                          MakeMpiCommunicator(*session, {}));
  CASTOR_ASSIGN_OR_RETURN(const std::string table,
                          Measure(flags, *session, comm.get()));
  comm = nullptr;
  if (session->rank() == 0) {
    console.out << fmt::format("{} ranks, bus bandwidth\n{}", session->world(),
                               table);
    CASTOR_RETURN_IF_ERROR(FlushOutput(console));
  }
  return session->Close();
}

}  // namespace
}  // namespace castor

int main(int argc, char** argv) {
  const castor::Console console = castor::Console::Standard();
  return castor::ReportStatus(castor::Main({argv + 1, argv + argc}, console),
                              castor::kName, console);
}
