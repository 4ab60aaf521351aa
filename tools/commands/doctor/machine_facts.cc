// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "chunk/base/log.h"
#include "collectives/options/option_words.h"
#include "offload/host/cgroup_folders.h"
#include "offload/host/cpu_map.h"
#include "offload/host/cpu_quota.h"
#include "offload/host/slab_system.h"
#include "offload/lanes/start_thread.h"
#include "offload/nvme/queue/io_queue.h"
#include "offload/nvme/queue/thread_io_queue.h"
#include "offload/nvme/queue/uring_io_queue.h"
#include "offload/nvme/store/nvme_drive.h"
#include "tools/commands/doctor/doctor.h"
#include "tools/models/files/input_file.h"

namespace castor {
namespace {

// The largest machines need a few megabytes.
constexpr uint64_t kMaxTopologyBytes = uint64_t{256} << 20;

// Both: empty or 0 where there is no such file.
std::string FirstLine(const std::string& file) {
  return internal::ReadFirstLine(file).value_or("");
}
int Number(const std::string& file) {
  return std::atoi(FirstLine(file).c_str());
}

// Nothing where there is no limit, as for those with CAP_IPC_LOCK.
std::optional<Bytes> LockLimit() {
  constexpr int kCapIpcLock = 14;  // of capabilities(7)
  constexpr std::string_view kKey = "CapEff:";
  uint64_t held = 0;
  std::ifstream lines("/proc/self/status");
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(kKey)) continue;
    held = std::strtoull(line.c_str() + kKey.size(), nullptr, 16);
  }
  if ((held >> kCapIpcLock & 1) != 0) return std::nullopt;
  return internal::RealSlabSystem().LockLimit();
}

// Binds a page to the node of this thread. Empty, or why that is refused.
std::string TryToBind() {
  const internal::SlabSystem& system = internal::RealSlabSystem();
  const Bytes page(::sysconf(_SC_PAGESIZE));
  std::string why;
  std::byte* const data = system.Map(page, &why);
  if (data == nullptr) return why;
  why = system.BindToCallersNode(data, page);
  system.Unmap(data, page);
  return why;
}

// Makes a run directory with a file in the folder of a drive and removes them.
Result<bool> TryFolder(const std::filesystem::path& folder) {
  Log silent([](LogLevel, std::string_view) {});  // the findings speak
  return OrThreadLimit([&]() -> Result<bool> {
    CASTOR_ASSIGN_OR_RETURN(
        const std::unique_ptr<NvmeDrive> drive,
        NvmeDrive::Open({.directory = folder, .size = KiB(4)},
                        MakeThreadIoQueue({.threads = 1}), &silent));
    const bool direct = drive->direct();
    CASTOR_RETURN_IF_ERROR(drive->Close());
    return direct;
  });
}

Result<DriveFacts> LookAt(const NvmeOption& drive) {
  CASTOR_ASSIGN_OR_RETURN(const FileSystemFacts file_system,
                          DescribeFileSystem(drive.directory));
  return DriveFacts{drive, TryFolder(drive.directory), file_system};
}

std::vector<GpuFacts> Gpus() {
  std::vector<GpuFacts> gpus;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/sys/bus/pci/devices", error),
       end;
       !error && entry != end; entry.increment(error)) {
    const std::string device = entry->path().string() + "/";
    const bool display = FirstLine(device + "class").starts_with("0x03");
    if (!display || FirstLine(device + "vendor") != "0x10de") continue;
    gpus.push_back({.bus_id = entry->path().filename().string(),
                    .lanes = Number(device + "current_link_width"),
                    .most_lanes = Number(device + "max_link_width")});
  }
  return gpus;
}

std::optional<int> DriverCuda() {
  // Never closed: the library may have started threads.
  void* const loaded = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (loaded == nullptr) return std::nullopt;
  auto* const ask =
      reinterpret_cast<int (*)(int*)>(::dlsym(loaded, "cuDriverGetVersion"));
  int version = 0;
  return ask != nullptr && ask(&version) == 0 ? version : 0;
}

// Starts as many threads as a rank does with a drive and a communicator, all at
// one time.
Status TryThreads(int cores) {
  constexpr int kBeside = 12;
  std::vector<std::thread> threads;
  std::mutex all;
  const Status started = [&] {
    const std::lock_guard lock(all);
    return OrThreadLimit([&]() -> Status {
      for (int i = 0; i < 2 * cores + kBeside; ++i) {
        threads.push_back(
            StartThread([&all] { const std::lock_guard wait(all); }));
      }
      return OkStatus();
    });
  }();
  for (std::thread& thread : threads) thread.join();
  return started;
}

}  // namespace

Result<MachineFacts> ReadMachineFacts(const std::vector<std::string>& nvme,
                                      const std::string& topology_file) {
  CASTOR_ASSIGN_OR_RETURN(const std::vector<NvmeOption> drives,
                          ParseNvmeFlag(nvme));
  MachineFacts facts;
  facts.topology_file = topology_file;
  if (topology_file.empty()) {
    facts.topology = internal::ReadMachineTopology();
  } else {
    facts.topology = ParseFile(topology_file, kMaxTopologyBytes,
                               internal::ParseMachineTopology);
    if (!facts.topology.ok()) return facts.topology.status();
  }
  facts.bind_refused = TryToBind();
  facts.available = internal::ReadAvailableMemory();
  facts.without_cgroups = internal::ReadAvailableMemory({.cgroup = "/none"});
  facts.lock_limit = LockLimit();
  facts.huge_pages = FirstLine("/sys/kernel/mm/transparent_hugepage/enabled");
  facts.cores = static_cast<int>(internal::CpuMap().node_of_core().size());
  facts.all_cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  facts.cpu_quota = internal::ReadCpuQuota();
  facts.threads = TryThreads(facts.cores);
  facts.uring = MakeUringIoQueue({}).status();
  facts.uring_disabled = Number("/proc/sys/kernel/io_uring_disabled") > 0;
  for (const NvmeOption& drive : drives) {
    const Result<DriveFacts> looked = LookAt(drive);
    facts.drives.push_back(looked.ok() ? *looked
                                       : DriveFacts{drive, looked.status()});
  }
  facts.gpus = Gpus();
  facts.gpu_driver = std::filesystem::exists("/proc/driver/nvidia/version");
  facts.driver_cuda = DriverCuda();
  facts.torch = ReadTorchFacts(!facts.gpus.empty());
  return facts;
}

}  // namespace castor
