// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/probe/probe_run.h"

#include <fmt/format.h>

#include <concepts>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "chunk/base/log.h"
#include "chunk/text/units_text.h"
#include "collectives/communicator.h"
#include "collectives/in_process_communicator.h"
#include "collectives/options/option_words.h"
#include "offload/cuda/cuda_device.h"
#include "offload/device.h"
#include "offload/kernels/instruction_set.h"
#include "offload/lanes/executor.h"
#include "offload/nvme/nvme_option.h"
#include "offload/nvme/store/nvme_store.h"
#include "offload/twin/simulated_device.h"
#include "offload/worker_pool.h"
#include "placement/machine/tier_model_file.h"
#include "tools/cli/atomic_file.h"
#include "tools/cli/progress.h"
#include "tools/cli/text/text_forms.h"
#include "tools/measure/line_fit.h"
#include "tools/measure/samples.h"
#include "tools/measure/timings.h"

namespace castor {
namespace {

constexpr Bytes kSize = MiB(256);
constexpr Bytes kQuickSize = MiB(64);
// For each series of sizes; of a quick run, so that all of them end in time.
constexpr double kSeconds = 2;
constexpr double kQuickSeconds = 0.25;

constexpr int kRanks = 2;
// One for each direction of copies, and for each rank.
constexpr int kThreads = 2;
// A residual or a spread beyond this is more noise than line.
constexpr double kUnsteady = 0.25;

class Probe {
 public:
  Probe(const ProbeRequest& request, std::vector<NvmeOption> drives, Bytes size,
        CudaCalls* cuda, const std::function<bool()>& stop, Progress& progress)
      : drives_(std::move(drives)),
        request_(request),
        size_(size),
        cuda_(cuda),
        progress_(progress),
        options_{.seconds = request.quick ? kQuickSeconds : kSeconds,
                 .stop = stop} {
    report_.size = size;
    report_.ranks = kRanks;
  }

  // All there is to measure, drives first: where one of them cannot be had,
  // nobody waits for the rest.
  Status Run() {
    Describe();
    CASTOR_RETURN_IF_ERROR(Nvme());
    CASTOR_RETURN_IF_ERROR(Copies());
    CASTOR_RETURN_IF_ERROR(Memory());
    return Collectives();
  }

  ProbeReport& report() { return report_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void Describe() {
    progress_.Phase("looking at the machine");
    auto topology = internal::ReadMachineTopology();
    if (topology.ok()) {
      report_.topology = *std::move(topology);
    } else {
      notes_.emplace_back(topology.status().message());
    }
    report_.instruction_set = KernelInstructionSet().name;
  }

  Status Nvme() {
    if (drives_.empty()) {
      report_.unmeasured.push_back({"NVMe", "no --nvme DIR was given"});
      return OkStatus();
    }
    progress_.Phase("reading and writing the drives");
    // The largest would fill half of its region, where four have to fit.
    const std::vector<Bytes> sizes(sizes_.begin(), sizes_.end() - 1);
    const Bytes region = size_ / 2;
    auto given = NvmeStore::DrivesFor(region * std::ssize(sizes), drives_);
    if (!given.ok()) {
      return Unavailable(fmt::format(
          "{}; give --nvme more, or measure with a smaller --size than {}",
          given.status().message(), FormatSizeExact(size_)));
    }
    Log log([this](LogLevel, std::string_view line) {
      const std::lock_guard lock(notes_mutex_);
      notes_.emplace_back(line);
    });
    CASTOR_ASSIGN_OR_RETURN(std::unique_ptr<NvmeStore> store,
                            NvmeStore::Create({.drives = *given, .log = &log}));
    CASTOR_ASSIGN_OR_RETURN(
        const NvmeTimes times,
        TimeNvme(std::move(store), region, size_ / 8, sizes, options_));
    MeasuredNvme nvme{.folders = {},
                      .queue = times.stats.queue,
                      .direct = times.stats.direct,
                      .verified_bytes = times.stats.bytes_read};
    for (const NvmeDriveOptions& drive : *given) {
      nvme.folders.push_back(drive.directory.string());
    }
    report_.nvme = std::move(nvme);
    AddLine("nvme_read", "NVMe read", times.read, &TierModel::nvme_read);
    AddLine("nvme_write", "NVMe write", times.write, &TierModel::nvme_write);
    AddLine("nvme_mixed", "NVMe half and half", times.mixed,
            &TierModel::nvme_mixed);
    return OkStatus();
  }

  // A GPU where there is one, unless it is not wanted, else a simulated one.
  Status Open(Executor* executor, std::unique_ptr<Device>* device) {
    if (cuda_ == nullptr && request_.gpu) {
      return Unavailable(
          fmt::format("--gpu {} needs CUDA, and this build has none: where the "
                      "CUDA toolkit is installed, build it with bazel build "
                      "--config=cuda //tools:castor",
                      *request_.gpu));
    }
    if (cuda_ != nullptr && !request_.no_gpu) {
      auto gpu = CudaDevice::Open(
          cuda_, {.ordinal = static_cast<int>(request_.gpu.value_or(0)),
                  .executor = executor});
      if (!gpu.ok() && request_.gpu) return gpu.status();
      report_.device_is_simulated = !gpu.ok();
      if (gpu.ok()) {
        *device = *std::move(gpu);
      } else {
        notes_.push_back(
            fmt::format("the device is simulated: {}", gpu.status().message()));
      }
    }
    if (report_.device_is_simulated) {
      *device = std::make_unique<SimulatedDevice>(
          SimulatedDeviceOptions{.capacity = size_, .executor = executor});
    }
    report_.device = (*device)->facts().name;
    return OkStatus();
  }

  Status Copies() {
    progress_.Phase("copying to the device and back");
    ThreadPool pool(kThreads);
    std::unique_ptr<Device> device;
    CASTOR_RETURN_IF_ERROR(Open(&pool, &device));
    CASTOR_ASSIGN_OR_RETURN(const CopyTimes times,
                            TimeCopies(*device, size_, sizes_, options_));
    AddLine("host_to_device", "host to device", times.to_device,
            &TierModel::host_to_device);
    AddLine("device_to_host", "device to host", times.from_device,
            &TierModel::device_to_host);
    AddLine("host_to_device_duplex", "host to device (both at once)",
            times.to_device_duplex, &TierModel::host_to_device_duplex);
    AddLine("device_to_host_duplex", "device to host (both at once)",
            times.from_device_duplex, &TierModel::device_to_host_duplex);
    return OkStatus();
  }

  Status Memory() {
    progress_.Phase("reading and writing host memory");
    WorkerPool& pool = WorkerPool::Process();
    CASTOR_ASSIGN_OR_RETURN(const MemoryTimes times,
                            TimeMemory(pool, size_, options_));
    const std::string threads =
        fmt::format(" ({})", Plural(pool.threads(), "thread"));
    AddRate("memory", "host memory" + threads, times.triad, &TierModel::memory);
    AddRate("optimizer", "AdamW" + threads, times.adam, &TierModel::optimizer);
    return OkStatus();
  }

  Status Collectives() {
    progress_.Phase("exchanging chunks among ranks");
    ThreadPool pool(kThreads);
    const std::vector<std::unique_ptr<Communicator>> ranks =
        MakeInProcessWorld({.world = kRanks, .executor = &pool});
    CASTOR_ASSIGN_OR_RETURN(
        const CollectiveTimes times,
        TimeCollectives(ranks, pool, size_ / 4, sizes_, options_));
    AddLine("all_gather", "all-gather", times.all_gather,
            &TierModel::all_gather);
    AddLine("reduce_scatter", "reduce-scatter", times.reduce_scatter,
            &TierModel::reduce_scatter);
    return OkStatus();
  }

  // The latency and bandwidth of a link, or of a collective of kRanks. Where no
  // line goes through the points, that is said and the report has failed.
  template <typename Model>
  void AddLine(const std::string& name, const std::string& words,
               const std::vector<TimedSize>& points,
               std::optional<Model> TierModel::*entry) {
    const Result<LineFit> fit = FitLine(points);
    if (!fit.ok()) {
      report_.unmeasured.push_back(
          {words, std::string(fit.status().message())});
      report_.failed = true;
      return;
    }
    Model model;
    if constexpr (std::same_as<Model, RingModel>) {
      model = RingOf(*fit, kRanks);
    } else {
      model = LinkOf(*fit);
    }
    report_.model.*entry = model;
    const auto& [bytes_per_second, latency_ns] = model;
    report_.links.push_back({.name = name,
                             .words = words,
                             .bytes_per_second = bytes_per_second,
                             .error = fit->residual,
                             .latency_ns = latency_ns,
                             .points = points});
  }

  void AddRate(const std::string& name, const std::string& words,
               const TimedRate& rate,
               std::optional<RateModel> TierModel::*entry) {
    const RateModel model = RateOf(rate.bytes_per_second);
    report_.model.*entry = model;
    report_.rates.push_back({.name = name,
                             .words = words,
                             .bytes_per_second = model.bytes_per_second,
                             .error = rate.spread,
                             .samples = rate.samples});
  }

  const std::vector<NvmeOption> drives_;
  const ProbeRequest& request_;
  const Bytes size_;  // a multiple of 1 MiB, so that the least below is 4 KiB
  const std::vector<Bytes> sizes_ = {size_ / 256, size_ / 64, size_ / 16,
                                     size_ / 4};
  CudaCalls* const cuda_;
  Progress& progress_;
  const RoundOptions options_;
  ProbeReport report_;
  std::mutex notes_mutex_;
  std::vector<std::string> notes_;  // guarded while a store lives
};

// Says where buffers fit the caches, so that memory looks faster than it is.
// STREAM asks for arrays four times as large as the last cache.
void NoteCaches(const ProbeReport& report, const Console& console) {
  if (!report.topology || report.topology->caches.empty()) return;
  const internal::CacheLevel& last = report.topology->caches.back();
  const Bytes caches = last.size * last.count;
  if (report.size >= caches * 4) return;
  console.Note(fmt::format(
      "buffers of {} are less than four times the {} of {}, so copies and "
      "host memory may look faster than they are; --size {} is enough",
      FormatSize(report.size), FormatSize(caches), last.name,
      FormatSizeExact(RoundUp(caches * 4, MiB(1)))));
}

// Says what was so unsteady that its number means little.
void NoteNoise(const ProbeReport& report, const Console& console) {
  std::vector<std::string> unsteady;
  for (const auto& all : {report.links, report.rates}) {
    for (const Measured& one : all) {
      if (one.error > kUnsteady) unsteady.push_back(one.words);
    }
  }
  if (unsteady.empty()) return;
  console.Note(fmt::format(
      "{} {} off by more than {}: measure again when nothing else keeps "
      "this machine busy, with a larger --size if that does not help",
      JoinedWithAnd(unsteady), unsteady.size() == 1 ? "is" : "are",
      Percent(kUnsteady)));
}

}  // namespace

Result<ProbeReport> RunProbe(const ProbeRequest& request, CudaCalls* cuda,
                             const std::function<bool()>& stop,
                             const Console& console) {
  const Bytes asked = request.size.value_or(request.quick ? kQuickSize : kSize);
  const Bytes size = RoundDown(asked, MiB(1));
  if (size < MiB(1)) {
    return InvalidArgument(
        fmt::format("--size {} is too small to measure with; 1MiB is the least",
                    FormatSizeExact(asked)));
  }
  if (request.gpu && request.no_gpu) {
    return InvalidArgument("--gpu and --no-gpu exclude each other");
  }
  CASTOR_ASSIGN_OR_RETURN(std::vector<NvmeOption> drives,
                          ParseNvmeFlag(request.nvme));
  if (!request.output.empty()) {
    CASTOR_RETURN_IF_ERROR(CheckFileTarget(request.output));
  }
  Progress progress(console);
  Probe probe(request, std::move(drives), size, cuda, stop, progress);
  const Status status = probe.Run();
  progress.Finish();
  ProbeReport report = std::move(probe.report());
  for (const std::string& note : probe.notes()) console.Note(note);
  NoteCaches(report, console);
  NoteNoise(report, console);
  report.stopped = status.code() == ErrorCode::kStoppedEarly;
  if (!status.ok() && !report.stopped) return status;
  // A file that says nothing would only hide that nothing was measured.
  if (!request.output.empty() && report.model != TierModel{}) {
    CASTOR_RETURN_IF_ERROR(
        WriteFileAtomically(request.output, FormatTierModel(report.model)));
    report.output = request.output;
  }
  return report;
}

}  // namespace castor
