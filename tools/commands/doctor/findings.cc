// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

#include "chunk/text/units_text.h"
#include "tools/cli/text/text_forms.h"
#include "tools/commands/doctor/doctor.h"

namespace castor {
namespace {

// Less than this holds no slab that is worth the name.
constexpr Bytes kLeastMemory = MiB(256);
// Below this nothing of a model fits.
constexpr Bytes kLeastSpace = MiB(64);
// Flash drives that are fuller than this write more slowly.
constexpr double kFullFraction = 0.1;

Severity HurtsIf(bool bad) { return bad ? Severity::kHurts : Severity::kOk; }

Finding Memory(const MachineFacts& facts) {
  if (!facts.available || !facts.without_cgroups) {
    return {"memory",
            "host memory",
            "the system does not say how much there is",
            Severity::kHurts,
            "the kernel kills a process whose budget is too large",
            "mount /proc, and give --host-budget with care"};
  }
  const auto& [bytes, source] = *facts.available;
  const bool by_group = source != facts.without_cgroups->source;
  return {"memory",
          "host memory",
          fmt::format("{} by {}", FormatSize(bytes), source),
          bytes < kLeastMemory ? Severity::kBlocks : HurtsIf(by_group),
          fmt::format("host and simulated device share that: {} are the least "
                      "of any use, and the machine could give {}",
                      FormatSize(kLeastMemory),
                      FormatSize(facts.without_cgroups->bytes)),
          by_group ? "raise the limit (docker run --memory, MemoryMax= of "
                     "systemd, --mem of Slurm)"
                   : "end other programs, or add memory"};
}

Finding LockedMemory(const MachineFacts& facts) {
  const std::optional<Bytes>& limit = facts.lock_limit;
  const bool enough =
      !limit || (facts.available && *limit >= facts.available->bytes);
  return {"memlock",
          "locked memory",
          limit ? FormatSize(*limit) + " may be locked" : "no limit",
          HurtsIf(!enough),
          "host memory above that is touched and left unlocked, and io_uring "
          "registers none of it: every NVMe transfer pins its pages anew",
          "ulimit -l unlimited (LimitMEMLOCK=infinity of systemd, --ulimit "
          "memlock=-1 of docker, memlock in /etc/security/limits.conf)"};
}

Finding HugePages(const MachineFacts& facts) {
  const bool none = facts.huge_pages.empty();
  const bool never = facts.huge_pages.find("[never]") != std::string::npos;
  return {"huge_pages",
          "huge pages",
          none ? "the kernel has no transparent ones"
               : "transparent: " + facts.huge_pages,
          HurtsIf(none || never),
          "slabs lie on pages of 4 KiB: locking and registering them, and "
          "walking through them, costs hundreds of times as many entries",
          none ? "boot a kernel with CONFIG_TRANSPARENT_HUGEPAGE=y"
               : "echo madvise | sudo tee "
                 "/sys/kernel/mm/transparent_hugepage/enabled"};
}

Finding Threads(const MachineFacts& facts) {
  const double quota = facts.cpu_quota.value_or(facts.cores);
  const bool low = quota < facts.cores;
  if (facts.cores == 1 && facts.all_cores > 1) {
    return {"cpu_quota",
            "processor time",
            fmt::format("1 core of {}, to which this process is bound",
                        facts.all_cores),
            Severity::kHurts,
            "transfers, the host's optimizer and the trainer wait for each "
            "other",
            "start ranks without it (mpirun --bind-to none, srun "
            "--cpu-bind=none, taskset -c 0-" +
                std::to_string(facts.all_cores - 1) + ")"};
  }
  return {"cpu_quota",
          "processor time",
          Plural(facts.cores, "core") +
              (low ? fmt::format(", of which a cgroup gives the time of {:.3g}",
                                 quota)
                   : ", no quota below them"),
          HurtsIf(low),
          fmt::format("the host's optimizer gets {}; threads of the trainer "
                      "beyond the quota are stopped for part of each period",
                      Plural(std::max<int64_t>(1, static_cast<int64_t>(quota)),
                             "thread")),
          "raise the quota (docker run --cpus, CPUQuota= of systemd, "
          "limits.cpu of Kubernetes)"};
}

Finding ThreadLimits(const MachineFacts& facts) {
  return {"threads",
          "threads",
          facts.threads.ok() ? "as many start as a rank needs"
                             : std::string(facts.threads.message()),
          facts.threads.ok() ? Severity::kOk : Severity::kBlocks,
          "no run starts",
          "raise the limit (docker run --pids-limit, TasksMax= of systemd, "
          "nproc in /etc/security/limits.conf)"};
}

Finding Numa(const MachineFacts& facts) {
  const bool known = facts.topology.ok();
  const bool elsewhere = !facts.topology_file.empty();
  const bool many = known && facts.topology->nodes.size() > 1;
  const bool refused = many && !elsewhere && !facts.bind_refused.empty();
  const std::string binding =
      elsewhere ? "of " + Shown(facts.topology_file)
      : refused ? "binding memory is refused: " + facts.bind_refused
      : many    ? "memory may be bound"
                : "all memory is as near";
  return {
      "numa",
      "NUMA nodes",
      known ? fmt::format("{} in {} with {}, {}",
                          Plural(std::ssize(facts.topology->nodes), "node"),
                          Plural(facts.topology->packages, "package"),
                          Plural(facts.topology->cores, "core"), binding)
            : std::string(facts.topology.status().message()),
      HurtsIf(!known || refused),
      "pinned memory lies where the kernel puts it, and a copy from the far "
      "node goes at half the speed or less",
      known ? "docker run --cap-add SYS_NICE, or a seccomp profile that "
              "allows mbind and set_mempolicy"
            : "mount /sys, or give the topology with --topology FILE.xml"};
}

Finding IoUring(const MachineFacts& facts) {
  return {"io_uring",
          "io_uring",
          facts.uring.ok() ? "the kernel gives a queue"
                           : std::string(facts.uring.message()),
          HurtsIf(!facts.uring.ok()),
          "NVMe transfers run on two blocking threads a drive, with fewer "
          "requests under way and more processor time",
          facts.uring_disabled
              ? "sudo sysctl kernel.io_uring_disabled=0"
              : "allow io_uring_setup, io_uring_enter and io_uring_register in "
                "the container's seccomp profile (docker run --security-opt "
                "seccomp=PROFILE.json), or use Linux 5.6 or later"};
}

// What cannot be used says only that.
void AddDrive(const DriveFacts& drive, std::vector<Finding>* findings) {
  const std::string name = drive.option.directory.string();
  const std::string shown = Shown(name);
  if (!drive.direct.ok()) {
    findings->push_back({"folder", "folder " + shown,
                         std::string(drive.direct.status().message()),
                         Severity::kBlocks, "nothing can be kept there",
                         "mkdir -p " + ShellWord(name) +
                             ", allow this user to write there, or give --nvme "
                             "another folder"});
    return;
  }
  const FileSystemFacts& facts = drive.file_system;
  findings->push_back(
      {"folder", "folder " + shown, "files can be made there, on " + facts.type,
       HurtsIf(facts.in_memory || facts.overlay || facts.network),
       facts.in_memory
           ? "what goes there stays in host memory, and nothing is gained"
       : facts.network
           ? "a file system of another machine is slower than a drive, and "
             "others share it"
           : "an overlay is the container's own layer: often small, and slower "
             "than the drive beneath",
       "give --nvme a folder on a drive (docker run -v)"});
  findings->push_back(
      {"direct_io", "O_DIRECT on " + shown,
       *drive.direct ? "taken" : "refused by the file system",
       HurtsIf(!*drive.direct),
       "transfers go through the page cache: each byte is copied once more, "
       "and the cache takes memory from the host tier",
       "give --nvme a folder on ext4 or xfs"});
  if (facts.size == Bytes(0)) return;  // ramfs does not say
  const Bytes need = drive.option.size.value_or(kLeastSpace);
  const bool full = static_cast<double>(facts.free.count()) <
                    kFullFraction * static_cast<double>(facts.size.count());
  findings->push_back(
      {"free_space", "free space on " + shown,
       fmt::format("{} of {}", FormatSize(facts.free), FormatSize(facts.size)),
       facts.free < need ? Severity::kBlocks : HurtsIf(full),
       fmt::format("a run starts where there are {}, and flash drives write "
                   "more slowly the fuller they are",
                   FormatSize(need)),
       "free some space there, or give --nvme another folder"});
}

Finding Gpu(const MachineFacts& facts) {
  std::string fact = Plural(std::ssize(facts.gpus), "NVIDIA GPU");
  const int cuda = facts.driver_cuda.value_or(0);  // 12080 is 12.8
  fact += !facts.gpu_driver    ? ", no driver loaded"
          : !facts.driver_cuda ? ", a driver, but no libcuda.so.1"
                               : fmt::format(", a driver for CUDA up to {}.{}",
                                             cuda / 1000, cuda % 1000 / 10);
  if (facts.gpus.empty()) fact = "none of NVIDIA's, so the device is simulated";
  return {
      "gpu",
      "GPU",
      fact,
      HurtsIf(!facts.gpus.empty() && !(facts.gpu_driver && facts.driver_cuda)),
      "no program can use it; Castor's device is simulated in host memory",
      facts.gpu_driver
          ? "install the driver's libraries, or give them to the container: "
            "docker run --gpus all"
          : "sudo apt-get install nvidia-driver, then sudo modprobe nvidia"};
}

Finding Link(const GpuFacts& gpu) {
  return {"pcie_link",
          "PCIe link of " + Shown(gpu.bus_id),
          gpu.lanes > 0
              ? fmt::format("{} lanes of {}", gpu.lanes, gpu.most_lanes)
              : "the system does not tell its lanes",
          HurtsIf(gpu.lanes > 0 && gpu.lanes < gpu.most_lanes),
          fmt::format("copies to and from it go at {} of what it could do",
                      Percent(1.0 * gpu.lanes / gpu.most_lanes)),
          "put the card into a slot with all lanes, and reseat it where the "
          "slot has them (lspci -vv shows LnkCap of both ends)"};
}

// "2.15.0+cu130" as 215, "3.0" as 300; 0 where it is no version.
int TorchNumber(std::string_view version) {
  int major = 0, minor = 0;
  const char* const end = version.data() + version.size();
  const auto [dot, error] = std::from_chars(version.data(), end, major);
  if (error != std::errc() || dot == end || *dot != '.') return 0;
  std::from_chars(dot + 1, end, minor);
  return 100 * major + std::min(minor, 99);
}

Finding Torch(const MachineFacts& facts) {
  constexpr int kLeastTorch = 204;
  constexpr int kLeastCapability = 80;  // kernels are built for it and newer
  const TorchFacts& torch = facts.torch;
  Finding finding = {"torch", "PyTorch", ""};
  if (torch.version.empty()) {
    finding.fact = "none in " + Shown(torch.python) +
                   ", which trainers in C++ and the commands do not need";
    return finding;
  }
  finding.fact = "torch " + Shown(torch.version) + " in " + Shown(torch.python);
  if (TorchNumber(torch.version) < kLeastTorch) {
    finding.severity = Severity::kHurts;
    finding.consequence = "castor.wrap was tried with torch 2.4 and newer";
    finding.fix = torch.python + " -m pip install 'torch>=2.4'";
    return finding;
  }
  if (facts.gpus.empty()) {
    finding.fact += ", for models on the CPU";
    return finding;
  }
  if (torch.gpu.empty()) {
    finding.fact += ", which sees no GPU";
    finding.severity = Severity::kHurts;
    finding.consequence = "models train on the CPU";
    finding.fix =
        "install a torch that is built with a CUDA of the driver's version or "
        "an older one (https://pytorch.org/get-started)";
    return finding;
  }
  finding.fact +=
      fmt::format(", on {} (sm_{})", Shown(torch.gpu), torch.capability);
  if (torch.capability < kLeastCapability) {
    finding.severity = Severity::kHurts;
    finding.consequence = "Castor's kernels are for sm_80 and newer GPUs";
    finding.fix = "castor.wrap(..., on=\"cpu\"), or a newer GPU";
  }
  return finding;
}

}  // namespace

std::vector<Finding> FindingsOf(const MachineFacts& facts) {
  std::vector<Finding> findings = {Memory(facts),       LockedMemory(facts),
                                   HugePages(facts),    Threads(facts),
                                   ThreadLimits(facts), Numa(facts),
                                   IoUring(facts)};
  for (const DriveFacts& drive : facts.drives) AddDrive(drive, &findings);
  findings.push_back(Gpu(facts));
  for (const GpuFacts& gpu : facts.gpus) findings.push_back(Link(gpu));
  findings.push_back(Torch(facts));
  return findings;
}

}  // namespace castor
