// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The communicator contract and whole engine steps on NCCL itself. Each rank is
// a process, which learns by the environment who it is:
//
//   CASTOR_TEST_RANK, CASTOR_TEST_WORLD   one of a world; alone unless set
//   CASTOR_TEST_ID_FILE                   a name that all ranks share, fresh
//   CASTOR_NCCL_LIBRARY                   NCCL, where the loader has none
//
// Ranks that share a GPU need a NCCL_HOSTID each. tools/gpu_check.sh starts
// them. Where there is no GPU or no NCCL every test is skipped with the reason.

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/nccl/id_exchange.h"
#include "collectives/nccl/nccl_calls.h"
#include "collectives/nccl/nccl_communicator.h"
#include "collectives/nccl/nccl_config.h"
#include "collectives/nccl/nccl_library.h"
#include "gtest/gtest.h"
#include "offload/cuda/cuda_calls.h"
#include "offload/cuda/cuda_device.h"
#include "offload/cuda/cuda_runtime_calls.h"
#include "offload/lane.h"
#include "offload/lanes/executor.h"
#include "tests/collectives/nccl/nccl_engine_check.h"
#include "tests/collectives/nccl/registered_heap.h"
#include "tests/support/contracts/communicator_contract.h"

namespace castor {
namespace {

std::string Environment(const char* name, const std::string& otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

int Rank() { return std::stoi(Environment("CASTOR_TEST_RANK", "0")); }
int World() { return std::stoi(Environment("CASTOR_TEST_WORLD", "1")); }

// What this process has: one GPU, and NCCL.
class Machine {
 public:
  // The same for the whole process; lives as long as it does.
  static Machine& Get() {
    static Machine* const machine = new Machine();
    return *machine;
  }

  const std::string& lacks() const { return lacks_; }  // empty: nothing
  CudaDevice& device() { return *device_; }
  NcclCalls& nccl() { return *nccl_; }
  Executor& executor() { return pool_; }

  // The next world of this process, which is the same one for all ranks: they
  // run the same tests in the same order.
  std::unique_ptr<Communicator> Join(NcclOptions options) {
    const std::string file =
        Environment("CASTOR_TEST_ID_FILE",
                    "/tmp/castor_nccl_test." + std::to_string(getpid())) +
        "." + std::to_string(++worlds_);
    FileIdExchange exchange(file);
    options.rank = Rank();
    options.world = World();
    options.device = device_.get();
    options.nccl = nccl_.get();
    options.exchange = &exchange;
    options.start_timeout_ns = 60'000'000'000;
    auto made = MakeNcclCommunicator(options);
    if (!made.ok()) {
      // The others wait for this rank in vain; nothing is left to be shown.
      fprintf(stderr, "%s\n", made.status().ToString().c_str());
      std::abort();
    }
    return *std::move(made);
  }

 private:
  Machine() {
    CudaCalls* const calls = CudaRuntimeCalls();
    if (calls == nullptr) {
      lacks_ = "this build has no CUDA";
      return;
    }
    auto device = CudaDevice::Open(calls, {.executor = &pool_, .log = &log_});
    if (!device.ok()) {
      lacks_ = device.status().ToString();
      return;
    }
    device_ = *std::move(device);
    auto nccl = NcclLibrary::Load();
    if (!nccl.ok()) {
      lacks_ = nccl.status().ToString();
      return;
    }
    nccl_ = *std::move(nccl);
    const auto [data, size] = RegisteredHeap();
    if (data == nullptr || calls->HostRegister(data, size) != kCudaOk) {
      lacks_ = "host memory cannot be registered with the device";
    }
  }

  std::string lacks_;
  ThreadPool pool_{4};
  Log log_;
  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<NcclCalls> nccl_;
  int worlds_ = 0;
};

class OneRank final : public WorldUnderTest {
 public:
  explicit OneRank(std::unique_ptr<Communicator> comm)
      : comm_(std::move(comm)) {}

  void ForEachRank(const RankBody& body) override {
    Machine& machine = Machine::Get();
    const auto lane = machine.device().MakeLane("lane");
    WorkerLane lane2("lane2", &machine.executor());
    RunRank(body, {*comm_, *lane, lane2});
  }

 private:
  std::unique_ptr<Communicator> comm_;
};

std::vector<CommunicatorBackend> Backends() {
  std::vector<CommunicatorBackend> backends;
  if (!Machine::Get().lacks().empty()) return backends;
  for (const auto reduce :
       {NcclOptions::Reduce::kExact, NcclOptions::Reduce::kNative}) {
    const bool exact = reduce == NcclOptions::Reduce::kExact;
    if (!exact && World() > 2) continue;  // NCCL's order is its own
    backends.push_back(
        {.name = exact ? "Exact" : "Native",
         .world = World(),
         .make = [=](int64_t timeout_ns) -> std::unique_ptr<WorldUnderTest> {
           NcclOptions options;
           options.reduce = reduce;
           options.timeout_ns = timeout_ns;
           options.exchange_bytes = KiB(48);
           return std::make_unique<OneRank>(Machine::Get().Join(options));
         }});
  }
  return backends;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CommunicatorContract);
INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorContract,
                         testing::ValuesIn(Backends()),
                         CommunicatorBackendName());

TEST(NcclHardwareTest, SaysWhatItIs) {
  Machine& machine = Machine::Get();
  if (!machine.lacks().empty()) GTEST_SKIP() << machine.lacks();
  EXPECT_GE(machine.nccl().version(), kOldestNccl);
  RecordProperty("nccl", NcclVersionText(machine.nccl().version()));
}

TEST(NcclHardwareTest, EngineStepsHaveTheBitsOfInProcessRanks) {
  Machine& machine = Machine::Get();
  if (!machine.lacks().empty()) GTEST_SKIP() << machine.lacks();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int stage : {1, 3}) {
      const auto comm = machine.Join({});
      ExpectTheBitsOfInProcessRanks(*comm, machine.device(), machine.executor(),
                                    stage, dtype);
    }
  }
}

}  // namespace
}  // namespace castor
