// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How fast an NVMe store moves extents: a number of random ones, all of one
// size, are kept under way for some seconds, and the rate is printed as one
// line of JSON. nvme_comparison.py runs it next to fio.

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/options/option_words.h"
#include "offload/lanes/event.h"
#include "offload/nvme/nvme_option.h"
#include "offload/nvme/queue/io_queue.h"
#include "offload/nvme/queue/thread_io_queue.h"
#include "offload/nvme/store/nvme_store.h"
#include "tools/cli/console.h"
#include "tools/cli/flags.h"

namespace castor {
namespace {

constexpr char kName[] = "nvme_benchmark";

struct Flags {
  std::vector<std::string> nvme;
  Bytes request = MiB(1);
  Bytes piece = MiB(1);
  Bytes stripe = kNvmeStripe;
  int64_t in_flight = 32;
  int64_t depth = 32;
  double seconds = 3;
  std::string mix = "read";
  bool threads = false;
  bool no_register = false;
};

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double ProcessorSeconds() {
  rusage usage;
  CASTOR_CHECK_EQ(::getrusage(RUSAGE_SELF, &usage), 0);
  auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) +
           static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Memory as that of a host slab: huge pages, touched.
class Buffers {
 public:
  explicit Buffers(Bytes size) : size_(static_cast<size_t>(size.count())) {
    data_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CASTOR_CHECK(data_ != MAP_FAILED);
    ::madvise(data_, size_, MADV_HUGEPAGE);
    std::mt19937_64 random(1);
    for (size_t at = 0; at < size_; at += 512) {
      const uint64_t word = random();
      std::memcpy(static_cast<std::byte*>(data_) + at, &word, sizeof(word));
    }
  }
  ~Buffers() { ::munmap(data_, size_); }
  std::span<std::byte> all() const {
    return {static_cast<std::byte*>(data_), size_};
  }

 private:
  void* data_;
  size_t size_;
};

// One transfer with each buffer at a time. The one that ends starts the next,
// as fio's do, and as an engine's follow each other.
class Run {
 public:
  Run(NvmeStore& store, std::span<std::byte> memory, Bytes request)
      : store_(store),
        memory_(memory),
        request_(request),
        order_(static_cast<size_t>(store.size() / request)) {
    std::iota(order_.begin(), order_.end(), int64_t{0});
  }

  // Every extent once, so that there is something to read, and the file system
  // has put its blocks in their places.
  Status WriteAll() {
    StartAll({.mix = "write", .most = std::ssize(order_)});
    return WaitForAll();
  }

  // Random extents until the time is over; bytes per second.
  Result<double> Measure(const std::string& mix, double seconds) {
    std::shuffle(order_.begin(), order_.end(), random_);
    const double begin = Seconds();
    StartAll({.mix = mix, .until = begin + seconds});
    CASTOR_RETURN_IF_ERROR(WaitForAll());
    std::lock_guard lock(mutex_);
    return static_cast<double>(ended_) * static_cast<double>(request_.count()) /
           (last_end_ - begin);
  }

 private:
  // What is to be moved: until a time, or so many extents.
  struct Work {
    std::string mix;
    double until = std::numeric_limits<double>::infinity();
    int64_t most = std::numeric_limits<int64_t>::max();
  };

  void StartAll(Work work) {
    const size_t buffers =
        memory_.size() / static_cast<size_t>(request_.count());
    {
      std::lock_guard lock(mutex_);
      work_ = std::move(work);
      begun_ = ended_ = 0;
      under_way_ = buffers;
    }
    for (size_t i = 0; i < buffers; ++i) Next(i);
  }

  void Next(size_t buffer) {
    int64_t extent = 0;
    bool read = false;
    {
      std::lock_guard lock(mutex_);
      if (!status_.ok() || begun_ == work_.most || Seconds() >= work_.until) {
        --under_way_;
        changed_.notify_one();
        return;
      }
      extent = order_[static_cast<size_t>(begun_++) % order_.size()];
      read =
          work_.mix == "read" || (work_.mix == "mixed" && random_() % 2 == 0);
    }
    const size_t size = static_cast<size_t>(request_.count());
    const std::span<std::byte> bytes = memory_.subspan(buffer * size, size);
    const Bytes offset = request_ * extent;
    const Event event = read ? store_.Read(offset, bytes, Event(), "read")
                             : store_.Write(offset, bytes, Event(), "write",
                                            IoPriority::kDemand);
    event.OnDone([this, buffer](const Status& status) {
      {
        std::lock_guard lock(mutex_);
        if (status_.ok()) status_ = status;
        ++ended_;
        last_end_ = Seconds();
      }
      Next(buffer);
    });
  }

  Status WaitForAll() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return under_way_ == 0; });
    return status_;
  }

  NvmeStore& store_;
  const std::span<std::byte> memory_;
  const Bytes request_;
  std::vector<int64_t> order_;  // changes while nothing is under way
  std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  Work work_;
  std::mt19937_64 random_{7};
  int64_t begun_ = 0;
  int64_t ended_ = 0;
  double last_end_ = 0;
  size_t under_way_ = 0;  // buffers
  Status status_;         // the first failure
};

Status Move(const Flags& flags, const Console& console) {
  CASTOR_ASSIGN_OR_RETURN(const std::vector<NvmeOption> given,
                          ParseNvmeFlag(flags.nvme));
  if (given.empty() || !NvmeLimit(given)) {
    return InvalidArgument("give --nvme DIR:SIZE, with a size");
  }
  Log log([&](LogLevel, std::string_view line) { console.Note(line); });
  NvmeStoreOptions options{
      .drives = {},
      .stripe = flags.stripe,
      .queue = {.depth = static_cast<int>(flags.depth), .piece = flags.piece},
      .log = &log};
  if (flags.threads) {
    options.queue.threads = static_cast<int>(flags.depth);
    options.make_queue = [queue = options.queue](size_t) {
      return MakeThreadIoQueue(queue);
    };
  }
  CASTOR_ASSIGN_OR_RETURN(
      options.drives,
      NvmeStore::DrivesFor(*NvmeLimit(given), given, flags.stripe));
  CASTOR_ASSIGN_OR_RETURN(const std::unique_ptr<NvmeStore> store,
                          NvmeStore::Create(std::move(options)));
  const Buffers memory(flags.request * flags.in_flight);
  if (store->size() < flags.request * (flags.in_flight + 1)) {
    return InvalidArgument(
        "the drives hold too few extents to keep so many apart: give them "
        "more");
  }
  if (!flags.no_register) store->RegisterMemory(memory.all());
  Run run(*store, memory.all(), flags.request);
  CASTOR_RETURN_IF_ERROR(run.WriteAll());
  const double processor = ProcessorSeconds();
  const double begin = Seconds();
  CASTOR_ASSIGN_OR_RETURN(const double rate,
                          run.Measure(flags.mix, flags.seconds));
  const NvmeStoreStats stats = store->stats();
  console.out << fmt::format(
      "{{\"bytes_per_second\": {:.0f}, \"processors\": {:.3f}, \"queue\": "
      "\"{}\", \"direct\": {}, \"registered_bytes\": {}}}\n",
      rate, (ProcessorSeconds() - processor) / (Seconds() - begin), stats.queue,
      stats.direct, stats.drives[0].registered.count());
  CASTOR_RETURN_IF_ERROR(FlushOutput(console));
  return store->Close();
}

Status Main(const std::vector<std::string>& args, const Console& console) {
  CommandLine line(kName, "Measures an NVMe store.");
  CLI::App& app = line.app();
  Flags flags;
  AddTextListFlag(app, "--nvme", &flags.nvme, kNvmeFlagHelp);
  AddSizeFlag(app, "--request", &flags.request, "of one extent (1 MiB)");
  AddIntFlag(app, "--in-flight", &flags.in_flight, 1, 4096,
             "extents under way (32)");
  AddChoiceFlag(app, "--mix", &flags.mix, {"read", "write", "mixed"},
                "what is done with them (read)");
  AddRealFlag(app, "--seconds", &flags.seconds, 0.01, 1e6, "to measure (3)");
  AddIntFlag(app, "--depth", &flags.depth, 1, 4096,
             "transfers with each drive (32)");
  AddSizeFlag(app, "--piece", &flags.piece, "of one transfer (1 MiB)");
  AddSizeFlag(app, "--stripe", &flags.stripe, "of several drives (1 MiB)");
  AddSwitch(app, "--threads", &flags.threads, "threads instead of io_uring");
  AddSwitch(app, "--no-register", &flags.no_register,
            "transfers in memory that is not registered");
  CASTOR_ASSIGN_OR_RETURN(const ParseOutcome parsed, ParseFlags(app, args));
  if (parsed == ParseOutcome::kHelpAsked) {
    console.out << line.Help();
    return FlushOutput(console);
  }
  return Move(flags, console);
}

}  // namespace
}  // namespace castor

int main(int argc, char** argv) {
  const castor::Console console = castor::Console::Standard();
  return castor::ReportStatus(castor::Main({argv + 1, argv + argc}, console),
                              castor::kName, console);
}
