// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/doctor/doctor_system.h"

#include <dlfcn.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <system_error>
#include <utility>

#include "chunk/base/log.h"
#include "chunk/base/units.h"
#include "offload/internal/cpu_map.h"
#include "offload/internal/slab_system.h"
#include "offload/nvme/io_queue.h"
#include "offload/nvme/nvme_drive.h"
#include "offload/nvme/thread_io_queue.h"
#include "offload/nvme/uring_io_queue.h"

namespace castor {
namespace {

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

// Where the loader looks for them, then where NVIDIA's packages put them.
std::vector<std::string> NamesOf(GpuLibrary library) {
  std::vector<std::string> names;
  switch (library) {
    case GpuLibrary::kDriver:
      return {"libcuda.so.1"};
    case GpuLibrary::kNccl:
      return {"libnccl.so.2"};
    case GpuLibrary::kRuntime:
      names = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0",
               "libcudart.so"};
      break;
  }
  const char* const home = std::getenv("CUDA_HOME");
  for (const std::string& folder : {std::string(home == nullptr ? "" : home),
                                    std::string("/usr/local/cuda")}) {
    if (!folder.empty()) names.push_back(folder + "/lib64/libcudart.so");
  }
  return names;
}

const char* VersionCall(GpuLibrary library) {
  switch (library) {
    case GpuLibrary::kDriver:
      return "cuDriverGetVersion";
    case GpuLibrary::kRuntime:
      return "cudaRuntimeGetVersion";
    case GpuLibrary::kNccl:
      return "ncclGetVersion";
  }
  return "";
}

}  // namespace

DoctorSystem::DoctorSystem(std::string root) : root_(std::move(root)) {}

internal::SystemPaths DoctorSystem::paths() const {
  return {.proc = root_ + "/proc", .cgroup = root_ + "/sys/fs/cgroup"};
}

std::optional<std::string> DoctorSystem::Line(std::string_view file) const {
  const std::optional<std::string> line =
      internal::ReadFirstLine(root_ + std::string(file));
  if (!line) return std::nullopt;
  return std::string(Trimmed(*line));
}

std::optional<int64_t> DoctorSystem::Field(std::string_view file,
                                           std::string_view key,
                                           int base) const {
  std::ifstream lines(root_ + std::string(file));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const std::string_view text =
        Trimmed(std::string_view(line).substr(key.size()));
    int64_t value = 0;
    const auto parsed =
        std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (parsed.ec != std::errc()) return std::nullopt;
    return value;
  }
  return std::nullopt;
}

std::vector<std::string> DoctorSystem::Entries(std::string_view folder) const {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator
           entry(root_ + std::string(folder), error),
       end;
       !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<int64_t> DoctorSystem::Limit(int resource) const {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 ||
      limit.rlim_cur > static_cast<rlim_t>(INT64_MAX)) {
    return std::nullopt;
  }
  return static_cast<int64_t>(limit.rlim_cur);
}

int DoctorSystem::UsableCores() const {
  return static_cast<int>(internal::CpuMap().node_of_core().size());
}

InstructionSet DoctorSystem::Instructions() const {
  return KernelInstructionSet();
}

Result<internal::MachineTopology> DoctorSystem::Topology() const {
  return internal::ReadMachineTopology();
}

std::string DoctorSystem::TryBind(int node) const {
  const internal::SlabSystem& system = internal::RealSlabSystem();
  const Bytes page(::sysconf(_SC_PAGESIZE));
  std::string why;
  std::byte* const data = system.Map(page, &why);
  if (data == nullptr) return why;
  why = system.BindToNode(data, page, node);
  system.Unmap(data, page);
  return why;
}

Status DoctorSystem::TryUring() const { return MakeUringIoQueue({}).status(); }

Result<bool> DoctorSystem::TryFolder(
    const std::filesystem::path& folder) const {
  // What the drive would say is said by the findings.
  Log silent([](LogLevel, std::string_view) {});
  CASTOR_ASSIGN_OR_RETURN(
      const std::unique_ptr<NvmeDrive> drive,
      NvmeDrive::Open({.directory = folder, .size = KiB(4)},
                      MakeThreadIoQueue({.threads = 1}), &silent));
  const bool direct = drive->direct();
  CASTOR_RETURN_IF_ERROR(drive->Close());
  return direct;
}

Result<FileSystemFacts> DoctorSystem::FileSystem(
    const std::filesystem::path& folder) const {
  return DescribeFileSystem(folder);
}

std::optional<LibraryFacts> DoctorSystem::Library(GpuLibrary library) const {
  for (const std::string& name : NamesOf(library)) {
    // Never closed: such a library may have started threads.
    void* const loaded = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (loaded == nullptr) continue;
    LibraryFacts facts{.name = name};
    auto* const version =
        reinterpret_cast<int (*)(int*)>(::dlsym(loaded, VersionCall(library)));
    if (version == nullptr || version(&facts.version) != 0) facts.version = 0;
    return facts;
  }
  return std::nullopt;
}

}  // namespace castor
