// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/doctor/storage_findings.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <optional>
#include <string>
#include <utility>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "chunk/base/units_text.h"
#include "tools/cli/text_forms.h"

namespace castor {
namespace {

// Each drive, lane and library of a process has a few; loaders of training data
// have hundreds.
constexpr int64_t kUsualFiles = 1024;
constexpr int64_t kLeastFiles = 64;
// Below this nothing of a model fits.
constexpr Bytes kLeastSpace = MiB(64);
// Flash drives that are fuller than this write more slowly.
constexpr double kFullFraction = 0.1;

Finding IoUring(const DoctorSystem& system) {
  Finding finding{.id = "io_uring", .subject = "io_uring"};
  const Status status = system.TryUring();
  if (status.ok()) {
    finding.fact = "the kernel gives a queue";
    return finding;
  }
  finding.fact = status.message();
  const std::string disabled =
      system.Line("/proc/sys/kernel/io_uring_disabled").value_or("0");
  const bool filtered =
      system.Field("/proc/self/status", "Seccomp:").value_or(0) == 2;
  finding.fact += fmt::format(
      " (kernel.io_uring_disabled = {}, {})", disabled,
      filtered ? "a seccomp filter is in force" : "no seccomp filter");
  std::string fix;
  if (disabled != "0") {
    fix = "sudo sysctl kernel.io_uring_disabled=0";
    if (disabled == "1") fix += " (or join the group kernel.io_uring_group)";
  } else if (filtered) {
    fix =
        "allow io_uring_setup, io_uring_enter and io_uring_register in the "
        "container's seccomp profile (docker run --security-opt "
        "seccomp=PROFILE.json)";
  } else {
    fix = "use Linux 5.6 or later";
  }
  return Hurting(std::move(finding),
                 "NVMe transfers run on blocking threads, two for each drive, "
                 "which keep fewer requests under way and take more processor "
                 "time",
                 std::move(fix));
}

Finding OpenFiles(const DoctorSystem& system) {
  Finding finding{.id = "open_files", .subject = "open files"};
  const std::optional<int64_t> limit = system.Limit(RLIMIT_NOFILE);
  finding.fact =
      limit ? fmt::format("at most {}", Grouped(*limit)) : "no limit";
  if (!limit || *limit >= kUsualFiles) return finding;
  constexpr char kFix[] =
      "ulimit -n 65536 (LimitNOFILE= of systemd, --ulimit nofile= of docker)";
  if (*limit < kLeastFiles) {
    return Blocking(std::move(finding),
                    "drives, ranks and libraries cannot open what they need",
                    kFix);
  }
  return Hurting(std::move(finding),
                 "a trainer that reads its data from many files, with a few "
                 "for each drive on top, runs out of them",
                 kFix);
}

Finding FileSystemType(const std::string& folder,
                       const FileSystemFacts& facts) {
  Finding finding{.id = "file_system",
                  .subject = "file system of " + folder,
                  .fact = facts.type};
  if (facts.in_memory) {
    return Hurting(
        std::move(finding),
        "what goes there stays in host memory: nothing is gained, and the "
        "kernel may kill the process for it",
        "give --nvme a folder on a drive");
  }
  if (facts.overlay) {
    return Hurting(
        std::move(finding),
        "an overlay is the container's own layer: often small, and slower "
        "than the drive beneath",
        "mount a folder of the host into the container (docker run -v)");
  }
  return finding;
}

Finding Direct(const std::string& folder, bool direct) {
  Finding finding{.id = "direct_io",
                  .subject = "O_DIRECT on " + folder,
                  .fact = direct ? "taken" : "refused by the file system"};
  if (direct) return finding;
  return Hurting(std::move(finding),
                 "transfers go through the page cache: each byte is copied "
                 "once more, and the cache takes memory from the host tier",
                 "give --nvme a folder on ext4 or xfs");
}

Finding FreeSpace(const NvmeOption& drive, const FileSystemFacts& facts) {
  const std::string folder = drive.directory.string();
  Finding finding{.id = "free_space", .subject = "free space on " + folder};
  if (facts.size == Bytes(0)) {
    finding.fact = "the file system does not say how much there is";
    return finding;
  }
  finding.fact =
      fmt::format("{} of {}", FormatSize(facts.free), FormatSize(facts.size));
  const Bytes need = drive.size.value_or(kLeastSpace);
  if (facts.free < need) {
    return Blocking(std::move(finding),
                    fmt::format("{} {}, which the start of a run would refuse",
                                FormatSize(need),
                                drive.size ? "are asked for there"
                                           : "are the least that is of use"),
                    "free some space there, or give --nvme another folder");
  }
  if (static_cast<double>(facts.free.count()) <
      kFullFraction * static_cast<double>(facts.size.count())) {
    return Hurting(std::move(finding),
                   "flash drives write more slowly the fuller they are",
                   "free some space there, or give --nvme another folder");
  }
  return finding;
}

void AddDrive(const DoctorSystem& system, const NvmeOption& drive,
              std::vector<Finding>* findings) {
  const std::string folder = Shown(drive.directory.string());
  Finding finding{.id = "folder", .subject = "folder " + folder};
  const Result<FileSystemFacts> facts = system.FileSystem(drive.directory);
  const Result<bool> direct =
      facts.ok() ? system.TryFolder(drive.directory) : facts.status();
  if (facts.ok()) {
    findings->push_back(FileSystemType(folder, *facts));
    findings->push_back(FreeSpace(drive, *facts));
  }
  if (!direct.ok()) {
    finding.fact = direct.status().message();
    const std::string remedy =
        facts.ok() ? "allow this user to write there"
                   : "mkdir -p " + ShellWord(drive.directory.string());
    findings->push_back(Blocking(std::move(finding),
                                 "nothing can be kept there",
                                 remedy + ", or give --nvme another folder"));
    return;
  }
  finding.fact = "files can be made there";
  findings->push_back(std::move(finding));
  findings->push_back(Direct(folder, *direct));
}

}  // namespace

std::vector<Finding> StorageFindings(const DoctorSystem& system,
                                     std::span<const NvmeOption> drives) {
  std::vector<Finding> findings = {IoUring(system), OpenFiles(system)};
  for (const NvmeOption& drive : drives) AddDrive(system, drive, &findings);
  return findings;
}

}  // namespace castor
