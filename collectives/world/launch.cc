// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/world/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <system_error>
#include <utility>

#include "chunk/text/quote.h"

namespace castor {
namespace {

constexpr int kMostRanks = 1'000'000;

struct Variables {
  Launcher by;
  const char* rank;
  const char* world;
  const char* local_rank;
};

constexpr Variables kOpenMpi = {Launcher::kOpenMpi, "OMPI_COMM_WORLD_RANK",
                                "OMPI_COMM_WORLD_SIZE",
                                "OMPI_COMM_WORLD_LOCAL_RANK"};
constexpr Variables kTorchrun = {Launcher::kTorchrun, "RANK", "WORLD_SIZE",
                                 "LOCAL_RANK"};
constexpr Variables kSlurm = {Launcher::kSlurm, "SLURM_PROCID",
                              "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"};

Result<std::optional<int>> ReadNumber(const EnvironmentReader& environment,
                                      const char* name, int most) {
  const char* const value = environment(name);
  if (value == nullptr) return std::optional<int>();
  const std::string_view text(value);
  int number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 ||
      number > most) {
    return InvalidArgument(
        fmt::format("{} in the environment is {}: it must be a number from 0 "
                    "to {}; set it right or unset it",
                    name, Quoted(text), most));
  }
  return std::optional<int>(number);
}

Status CheckRank(const Launch& launch, std::string_view source) {
  if (launch.rank < launch.world) return OkStatus();
  return InvalidArgument(
      fmt::format("{} says rank {} of {} ranks: ranks count from 0, so there "
                  "is no such rank",
                  source, launch.rank, launch.world));
}

// Nothing where neither rank nor size is set. Half of them is an error, unless
// the other half means nothing by itself.
Result<std::optional<Launch>> ReadLaunch(const EnvironmentReader& environment,
                                         const Variables& names) {
  CASTOR_ASSIGN_OR_RETURN(const std::optional<int> rank,
                          ReadNumber(environment, names.rank, kMostRanks));
  CASTOR_ASSIGN_OR_RETURN(const std::optional<int> world,
                          ReadNumber(environment, names.world, kMostRanks));
  CASTOR_ASSIGN_OR_RETURN(
      const std::optional<int> local,
      ReadNumber(environment, names.local_rank, kMostRanks));
  // Slurm sets the rank, 0, for a batch script too.
  if (names.by == Launcher::kSlurm && !world) return std::optional<Launch>();
  if (!rank && !world) return std::optional<Launch>();
  if (!rank || !world) {
    return InvalidArgument(fmt::format(
        "{} is set in the environment and {} is not: {} sets both; set both or "
        "unset both",
        rank ? names.rank : names.world, rank ? names.world : names.rank,
        LauncherName(names.by)));
  }
  Launch launch;
  launch.by = names.by;
  launch.rank = *rank;
  launch.world = *world;
  launch.local_rank = local.value_or(*rank);
  CASTOR_RETURN_IF_ERROR(CheckRank(
      launch, fmt::format("the environment of {} ({}, {})",
                          LauncherName(names.by), names.rank, names.world)));
  return std::optional<Launch>(launch);
}

Status ReadMaster(const EnvironmentReader& environment, Launch* launch) {
  constexpr int kMostPorts = 65535;
  CASTOR_ASSIGN_OR_RETURN(const std::optional<int> port,
                          ReadNumber(environment, "MASTER_PORT", kMostPorts));
  const char* const address = environment("MASTER_ADDR");
  if ((address != nullptr) != port.has_value()) {
    return InvalidArgument(fmt::format(
        "{} is set in the environment and {} is not: torchrun sets both; set "
        "both or unset both",
        port ? "MASTER_PORT" : "MASTER_ADDR",
        port ? "MASTER_ADDR" : "MASTER_PORT"));
  }
  if (address == nullptr) return OkStatus();
  launch->master_address = launch->meeting_host = address;
  launch->master_port = *port;
  launch->meeting_port = *port < kMostPorts ? *port + 1 : *port - 1;
  return OkStatus();
}

// "node07" of "node[07-09,12],gpu[1-2]".
std::string FirstHost(std::string_view list) {
  const size_t open = list.find('[');
  const size_t comma = list.find(',');
  if (open == list.npos || comma < open) {
    return std::string(list.substr(0, comma));
  }
  const size_t close = std::min(list.find(']', open), list.size());
  const std::string_view numbers = list.substr(open + 1, close - open - 1);
  std::string host(list.substr(0, open));
  host += numbers.substr(0, numbers.find_first_of("-,"));
  if (close == list.size()) return host;
  const std::string_view rest = list.substr(close + 1);
  return host.append(rest.substr(0, rest.find(',')));
}

// A port that steps of one machine at a time do not share, below those that
// systems hand out.
Status ReadStep(const EnvironmentReader& environment, Launch* launch) {
  constexpr int kMostSteps = std::numeric_limits<int>::max();
  constexpr int64_t kFirstPort = 15000;
  constexpr int64_t kPorts = 15000;
  constexpr int64_t kStepsApart = 17;
  CASTOR_ASSIGN_OR_RETURN(const std::optional<int> job,
                          ReadNumber(environment, "SLURM_JOB_ID", kMostSteps));
  CASTOR_ASSIGN_OR_RETURN(const std::optional<int> step,
                          ReadNumber(environment, "SLURM_STEP_ID", kMostSteps));
  const char* const hosts = environment("SLURM_STEP_NODELIST");
  if (!job || !step || hosts == nullptr) return OkStatus();
  launch->meeting_host = FirstHost(hosts);
  launch->meeting_port =
      static_cast<int>(kFirstPort + (*job * kStepsApart + *step) % kPorts);
  return OkStatus();
}

Result<Launch> FromEnvironment(const EnvironmentReader& environment) {
  CASTOR_ASSIGN_OR_RETURN(const std::optional<Launch> mpi,
                          ReadLaunch(environment, kOpenMpi));
  CASTOR_ASSIGN_OR_RETURN(std::optional<Launch> torch,
                          ReadLaunch(environment, kTorchrun));
  if (torch) CASTOR_RETURN_IF_ERROR(ReadMaster(environment, &*torch));
  if (mpi && torch) {
    if (mpi->rank != torch->rank || mpi->world != torch->world) {
      return InvalidArgument(fmt::format(
          "Open MPI says this is rank {} of {} (OMPI_COMM_WORLD_RANK, "
          "OMPI_COMM_WORLD_SIZE), and torchrun's variables say rank {} of {} "
          "(RANK, WORLD_SIZE): start the program by one of them, or unset the "
          "variables of the other",
          mpi->rank, mpi->world, torch->rank, torch->world));
    }
    Launch launch = *mpi;
    launch.master_address = torch->master_address;
    launch.master_port = torch->master_port;
    launch.meeting_host = torch->meeting_host;
    launch.meeting_port = torch->meeting_port;
    return launch;
  }
  if (mpi) return *mpi;
  if (torch) return *torch;
  CASTOR_ASSIGN_OR_RETURN(std::optional<Launch> slurm,
                          ReadLaunch(environment, kSlurm));
  if (slurm) CASTOR_RETURN_IF_ERROR(ReadStep(environment, &*slurm));
  return slurm.value_or(Launch());
}

}  // namespace

std::string_view LauncherName(Launcher launcher) {
  switch (launcher) {
    case Launcher::kNone:
      return "nothing";
    case Launcher::kExplicit:
      return "the caller";
    case Launcher::kOpenMpi:
      return "Open MPI";
    case Launcher::kTorchrun:
      return "torchrun";
    case Launcher::kSlurm:
      return "Slurm";
  }
  return "unknown";
}

Result<Launch> FindLaunch(const EnvironmentReader& environment,
                          const LaunchRequest& request) {
  CASTOR_ASSIGN_OR_RETURN(Launch launch, FromEnvironment(environment));
  if (launch.by != Launcher::kNone) {
    const struct {
      const char* what;
      std::optional<int> asked;
      int found;
    } values[] = {
        {"rank", request.rank, launch.rank},
        {"number of ranks", request.world, launch.world},
        {"rank on this machine", request.local_rank, launch.local_rank}};
    for (const auto& value : values) {
      if (!value.asked || *value.asked == value.found) continue;
      return InvalidArgument(fmt::format(
          "the {} was given as {}, and {}, which started this process, says "
          "{}: leave it away, or start the program without {}",
          value.what, *value.asked, LauncherName(launch.by), value.found,
          LauncherName(launch.by)));
    }
    return launch;
  }
  if (!request.rank && !request.world && !request.local_rank) return launch;
  if (!request.rank || !request.world) {
    return InvalidArgument(
        "a process needs its rank and the number of ranks: give both, or start "
        "the program by mpirun, torchrun or srun, which tell it");
  }
  launch.by = Launcher::kExplicit;
  launch.rank = *request.rank;
  launch.world = *request.world;
  launch.local_rank = request.local_rank.value_or(launch.rank);
  if (launch.rank < 0 || launch.world < 1 || launch.local_rank < 0) {
    return InvalidArgument(fmt::format(
        "rank {} of {}, {} on this machine, was given: ranks count from 0, and "
        "there is at least one",
        launch.rank, launch.world, launch.local_rank));
  }
  CASTOR_RETURN_IF_ERROR(CheckRank(launch, "the caller"));
  return launch;
}

Bytes ExchangeBufferFor(Bytes device_budget, int world) {
  // Two segments for every other rank, of whole cache lines.
  constexpr Bytes kMost = MiB(4);
  constexpr Bytes kLeastSegment = KiB(4);
  constexpr Bytes kLine = Bytes(64);
  if (world == 1) return Bytes(0);
  const Bytes fair =
      device_budget > Bytes(0) ? std::min(kMost, device_budget / 32) : kMost;
  const int64_t segments = int64_t{2} * (world - 1);
  return std::max(kLeastSegment, RoundDown(fair / segments, kLine)) * segments;
}

}  // namespace castor
