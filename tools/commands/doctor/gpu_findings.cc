// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/doctor/gpu_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tools/cli/text_forms.h"

namespace castor {
namespace {

constexpr char kDevices[] = "/sys/bus/pci/devices";
constexpr char kNvidia[] = "0x10de";
constexpr char kDisplayClass[] = "0x03";  // of whatever kind

std::string FileOf(const std::string& device, std::string_view name) {
  return fmt::format("{}/{}/{}", kDevices, device, name);
}

std::vector<std::string> Gpus(const DoctorSystem& system) {
  std::vector<std::string> gpus;
  for (const std::string& device : system.Entries(kDevices)) {
    if (system.Line(FileOf(device, "vendor")) == kNvidia &&
        system.Line(FileOf(device, "class"))
            .value_or("")
            .starts_with(kDisplayClass)) {
      gpus.push_back(device);
    }
  }
  return gpus;
}

// The driver's version, of "NVRM version: NVIDIA UNIX x86_64 Kernel Module
// 535.104.05  Sat Aug 19 ...": the first word of digits and points.
std::optional<std::string> DriverVersion(const DoctorSystem& system) {
  const std::optional<std::string> line =
      system.Line("/proc/driver/nvidia/version");
  if (!line) return std::nullopt;
  std::string_view text = *line;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (word.find_first_not_of("0123456789.") == word.npos &&
        word.find('.') != word.npos) {
      return std::string(word);
    }
  }
  return "of unknown version";
}

// 13000 is CUDA 13.0.
std::string CudaVersion(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// 22809 is 2.28.9; before 2.9 there was one digit less: 2708 is 2.7.8.
std::string NcclVersion(int version) {
  const int base = version < 10'000 ? 1'000 : 10'000;
  return fmt::format("{}.{}.{}", version / base, version % base / 100,
                     version % 100);
}

Finding Driver(const DoctorSystem& system, size_t gpus,
               const std::optional<LibraryFacts>& library) {
  Finding finding{.id = "gpu", .subject = "GPU"};
  if (gpus == 0) {
    finding.fact =
        "no NVIDIA GPU on the PCI bus; Castor's device is simulated in host "
        "memory";
    return finding;
  }
  finding.fact = Plural(static_cast<int64_t>(gpus), "NVIDIA GPU");
  const std::optional<std::string> driver = DriverVersion(system);
  constexpr char kConsequence[] =
      "no program can use it; Castor's device is simulated in host memory";
  if (!driver) {
    finding.fact += ", no driver loaded";
    return Hurting(std::move(finding), kConsequence,
                   "sudo apt-get install nvidia-driver, then sudo modprobe "
                   "nvidia");
  }
  finding.fact += ", driver " + *driver;
  if (!library) {
    finding.fact += ", libcuda.so.1 not found";
    return Hurting(std::move(finding), kConsequence,
                   "install the driver's libraries, or give them to the "
                   "container: docker run --gpus all");
  }
  if (library->version > 0) {
    finding.fact += ", for CUDA up to " + CudaVersion(library->version);
  }
  return finding;
}

Finding Runtime(size_t gpus, const std::optional<LibraryFacts>& driver,
                const std::optional<LibraryFacts>& runtime) {
  Finding finding{.id = "cuda_runtime", .subject = "CUDA runtime"};
  if (!runtime) {
    finding.fact = "not found";
    if (gpus == 0) return finding;
    return Hurting(std::move(finding),
                   "a Castor that is built with --config=cuda does not start",
                   "install the CUDA toolkit, and set CUDA_HOME where it is "
                   "not in /usr/local/cuda");
  }
  finding.fact = runtime->version > 0
                     ? fmt::format("{} ({})", CudaVersion(runtime->version),
                                   Shown(runtime->name))
                     : Shown(runtime->name) + ", which tells no version";
  // Within a major version any runtime works with any driver.
  if (gpus > 0 && driver && driver->version > 0 &&
      runtime->version / 1000 > driver->version / 1000) {
    return Hurting(std::move(finding),
                   fmt::format("the driver knows CUDA up to {}, so every call "
                               "of a newer runtime fails",
                               CudaVersion(driver->version)),
                   "install a newer driver, or a toolkit that is not newer");
  }
  return finding;
}

Finding Nccl(size_t gpus, const std::optional<LibraryFacts>& nccl) {
  Finding finding{.id = "nccl", .subject = "NCCL"};
  if (nccl) {
    finding.fact = nccl->version > 0
                       ? fmt::format("{} ({})", NcclVersion(nccl->version),
                                     Shown(nccl->name))
                       : Shown(nccl->name) + ", which tells no version";
    return finding;
  }
  finding.fact = "not found";
  if (gpus < 2) return finding;
  return Hurting(std::move(finding),
                 fmt::format("{} cannot exchange chunks with each other",
                             Plural(static_cast<int64_t>(gpus), "GPU")),
                 "install libnccl2 of NVIDIA's repository");
}

// The number at the front of "16" or "32.0 GT/s PCIe"; nothing where the
// system does not know.
std::optional<double> LinkNumber(const DoctorSystem& system,
                                 const std::string& device,
                                 std::string_view name) {
  const std::optional<std::string> line = system.Line(FileOf(device, name));
  if (!line) return std::nullopt;
  double number = 0;
  const auto parsed =
      std::from_chars(line->data(), line->data() + line->size(), number);
  if (parsed.ec != std::errc() || number <= 0) return std::nullopt;
  return number;
}

Finding Link(const DoctorSystem& system, const std::string& gpu) {
  Finding finding{.id = "pcie_link", .subject = "PCIe link of " + Shown(gpu)};
  const auto width = LinkNumber(system, gpu, "current_link_width");
  const auto most_width = LinkNumber(system, gpu, "max_link_width");
  const auto speed = LinkNumber(system, gpu, "current_link_speed");
  const auto most_speed = LinkNumber(system, gpu, "max_link_speed");
  if (!width || !most_width || !speed || !most_speed) {
    finding.fact = "the system does not tell its width and speed";
    return finding;
  }
  finding.fact = fmt::format("x{} of x{}, {} of {} GT/s", *width, *most_width,
                             *speed, *most_speed);
  if (*speed < *most_speed) finding.fact += " (an idle link slows down)";
  if (*width >= *most_width) return finding;
  return Hurting(
      std::move(finding),
      fmt::format("copies to and from it go at {} of what it could do",
                  Percent(*width / *most_width)),
      "put the card into a slot with all lanes, and reseat it where the slot "
      "has them (lspci -vv shows LnkCap of both ends)");
}

}  // namespace

std::vector<Finding> GpuFindings(const DoctorSystem& system) {
  const std::vector<std::string> gpus = Gpus(system);
  const auto driver = system.Library(GpuLibrary::kDriver);
  std::vector<Finding> findings = {
      Driver(system, gpus.size(), driver),
      Runtime(gpus.size(), driver, system.Library(GpuLibrary::kRuntime)),
      Nccl(gpus.size(), system.Library(GpuLibrary::kNccl))};
  for (const std::string& gpu : gpus) {
    findings.push_back(Link(system, gpu));
  }
  return findings;
}

}  // namespace castor
