// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/doctor/memory_findings.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <optional>
#include <string>

#include "chunk/base/units.h"
#include "chunk/base/units_text.h"
#include "offload/internal/available_memory.h"

namespace castor {
namespace {

constexpr char kMeminfo[] = "/proc/meminfo";
constexpr int kCapIpcLock = 14;  // of capabilities(7)
// Less than this holds no slab that is worth the name.
constexpr Bytes kLeastMemory = MiB(256);

// What meminfo says in KiB; 0 where it does not.
Bytes Meminfo(const DoctorSystem& system, std::string_view key) {
  return KiB(system.Field(kMeminfo, key).value_or(0));
}

Finding Available(const DoctorSystem& system) {
  Finding finding{.id = "memory", .subject = "host memory"};
  const std::optional<internal::AvailableMemory> available =
      internal::ReadAvailableMemory(system.paths());
  if (!available) {
    finding.fact = "the system does not say how much is available";
    return Hurting(std::move(finding),
                   "a budget that is too large is found out by the kernel, "
                   "which kills the process",
                   "mount /proc, and give --host-budget with care");
  }
  const Bytes total = Meminfo(system, "MemTotal:");
  const Bytes machine = Meminfo(system, "MemAvailable:");
  finding.fact = fmt::format("{} available of {}", FormatSize(available->bytes),
                             FormatSize(total));
  const bool by_group = available->bytes < machine;
  if (by_group) finding.fact += ", limited by " + available->source;
  if (available->bytes < kLeastMemory) {
    return Blocking(
        std::move(finding),
        fmt::format("Castor needs {} to do anything of use, and refuses a "
                    "host budget that does not fit",
                    FormatSize(kLeastMemory)),
        by_group ? "raise the limit (docker run --memory, MemoryMax= of "
                   "systemd, --mem of Slurm)"
                 : "end other programs, or add memory");
  }
  if (by_group) {
    return Hurting(
        std::move(finding),
        fmt::format("host and simulated device share {}, though the machine "
                    "could give {}",
                    FormatSize(available->bytes), FormatSize(machine)),
        "raise the limit (docker run --memory, MemoryMax= of systemd, --mem "
        "of Slurm)");
  }
  return finding;
}

// How much this process may lock; nothing where there is no limit.
std::optional<Bytes> LockLimit(const DoctorSystem& system) {
  const int64_t capabilities =
      system.Field("/proc/self/status", "CapEff:", 16).value_or(0);
  if ((capabilities >> kCapIpcLock & 1) != 0) return std::nullopt;
  const std::optional<int64_t> limit = system.Limit(RLIMIT_MEMLOCK);
  if (!limit) return std::nullopt;
  return Bytes(*limit);
}

// Whether all that could be taken may be locked.
bool LocksAll(const DoctorSystem& system) {
  const std::optional<Bytes> limit = LockLimit(system);
  const auto available = internal::ReadAvailableMemory(system.paths());
  return !limit || (available && *limit >= available->bytes);
}

Finding LockedMemory(const DoctorSystem& system) {
  Finding finding{.id = "memlock", .subject = "locked memory"};
  const std::optional<Bytes> limit = LockLimit(system);
  finding.fact = limit ? FormatSize(*limit) + " may be locked" : "no limit";
  if (LocksAll(system)) return finding;
  return Hurting(
      std::move(finding),
      "host memory above that is touched and left unlocked, and io_uring "
      "registers none of it: every NVMe transfer pins its pages anew",
      "ulimit -l unlimited (LimitMEMLOCK=infinity of systemd, --ulimit "
      "memlock=-1 of docker, memlock in /etc/security/limits.conf)");
}

Finding HugePages(const DoctorSystem& system) {
  Finding finding{.id = "huge_pages", .subject = "huge pages"};
  const std::optional<std::string> setting =
      system.Line("/sys/kernel/mm/transparent_hugepage/enabled");
  constexpr char kConsequence[] =
      "slabs lie on pages of 4 KiB: locking and registering them, and walking "
      "through them, costs hundreds of times as many entries";
  if (!setting) {
    finding.fact = "the kernel has no transparent ones";
    return Hurting(std::move(finding), kConsequence,
                   "boot a kernel with CONFIG_TRANSPARENT_HUGEPAGE=y");
  }
  finding.fact = "transparent: " + *setting;
  if (setting->find("[never]") == setting->npos) return finding;
  return Hurting(
      std::move(finding), kConsequence,
      "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled");
}

Finding ReservedPages(const DoctorSystem& system) {
  Finding finding{.id = "hugetlb", .subject = "reserved pages"};
  const int64_t total = system.Field(kMeminfo, "HugePages_Total:").value_or(0);
  const int64_t free = system.Field(kMeminfo, "HugePages_Free:").value_or(0);
  const Bytes size = Meminfo(system, "Hugepagesize:");
  if (total == 0) {
    finding.fact = "none set aside";
    return finding;
  }
  finding.fact =
      fmt::format("{} set aside as {} pages of {}, {} of them free",
                  FormatSize(size * total), total, FormatSize(size), free);
  if (free == 0) return finding;
  return Hurting(std::move(finding),
                 fmt::format("Castor uses transparent huge pages, so the {} "
                             "that nobody has taken are lost to it",
                             FormatSize(size * free)),
                 "sudo sysctl vm.nr_hugepages=0");
}

Finding Overcommit(const DoctorSystem& system) {
  Finding finding{.id = "overcommit", .subject = "overcommit"};
  const std::optional<std::string> mode =
      system.Line("/proc/sys/vm/overcommit_memory");
  finding.fact = "vm.overcommit_memory = " + mode.value_or("not known");
  if (mode != "2") return finding;
  const Bytes left = std::max(Bytes(0), Meminfo(system, "CommitLimit:") -
                                            Meminfo(system, "Committed_AS:"));
  finding.fact += fmt::format(
      ": {} may still be mapped by all programs together", FormatSize(left));
  return Hurting(std::move(finding),
                 "a slab above that is refused, even where memory is free",
                 "sudo sysctl vm.overcommit_memory=0");
}

Finding Swap(const DoctorSystem& system) {
  Finding finding{.id = "swap", .subject = "swap"};
  const Bytes total = Meminfo(system, "SwapTotal:");
  if (total == Bytes(0)) {
    finding.fact = "none";
    return finding;
  }
  finding.fact = fmt::format("{}, of which {} used", FormatSize(total),
                             FormatSize(total - Meminfo(system, "SwapFree:")));
  if (LocksAll(system)) return finding;
  return Hurting(std::move(finding),
                 "what may not be locked may be swapped out, and comes back a "
                 "page at a time in the middle of a step",
                 "raise the limit of locked memory, or sudo swapoff -a");
}

}  // namespace

std::vector<Finding> MemoryFindings(const DoctorSystem& system) {
  return {Available(system),     LockedMemory(system), HugePages(system),
          ReservedPages(system), Overcommit(system),   Swap(system)};
}

}  // namespace castor
