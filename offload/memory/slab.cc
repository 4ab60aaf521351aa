// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/memory/slab.h"

#include <fmt/format.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/text/units_text.h"
#include "offload/host/available_memory.h"
#include "offload/host/slab_system.h"
#include "offload/memory/memory_promise.h"

namespace castor {
namespace {

// Below this a huge page holds more than the slab.
constexpr Bytes kHugePagesFrom = MiB(2);

Bytes PageSize() { return Bytes(sysconf(_SC_PAGESIZE)); }

// A mapping of `size` rounded up to a page, with nothing touched yet. The
// promise lasts until all of it is.
Result<Slab> MapSlab(Tier tier, std::string_view what, Bytes size,
                     const internal::SlabSystem& system, Bytes returned,
                     internal::MemoryPromise* promise) {
  CASTOR_CHECK_GE(size, Bytes(0));
  if (size == Bytes(0)) return Slab(tier, nullptr, size, {});
  std::optional<internal::AvailableMemory> available;
  if (!promise->Make(size, returned, system, &available)) {
    return Unavailable(fmt::format(
        "{} of {} were asked for, but {} are available here ({}): lower the "
        "{} budget, use fewer ranks, or free memory",
        FormatBytesUp(size), what, FormatBytes(available->bytes),
        available->source, TierName(tier)));
  }
  const Bytes mapped = RoundUp(size, PageSize());
  std::string why;
  std::byte* data = system.Map(mapped, &why);
  if (data == nullptr) {
    return Unavailable(fmt::format(
        "{} of {} were asked for, but the system refuses to map them: {}; "
        "lower the {} budget or raise the limit (`ulimit -v`, "
        "vm.overcommit_memory)",
        FormatBytes(size), what, why, TierName(tier)));
  }
  return Slab(tier, data, size,
              [system = &system, mapped](std::byte* start, Bytes) {
                system->Unmap(start, mapped);
              });
}

// Makes every page present, so that no transfer or kernel meets a page fault,
// and a machine that lacks the memory shows it now.
// What is there keeps its value.
void Touch(std::byte* data, Bytes size) {
  const int64_t page = PageSize().count();
  for (int64_t at = 0; at < size.count(); at += page) {
    volatile std::byte* const first =
        const_cast<volatile std::byte*>(data + at);
    *first = *first;
  }
}

bool AdviseHugePages(const Slab& slab, const internal::SlabSystem& system) {
  return slab.size() >= kHugePagesFrom &&
         system.AdviseHugePages(slab.data(), RoundUp(slab.size(), PageSize()))
             .empty();
}

void SayNotLocked(Log* log, Bytes size, std::optional<Bytes> limit,
                  std::string_view why) {
  if (log == nullptr) return;
  log->WarnOnce(
      "host-slab-lock",
      fmt::format(
          "{} of host memory stay unlocked: {}, the limit is {}. They are "
          "touched and used all the same, but may be swapped out and are then "
          "slow. To lock them, allow each rank of this process {} KiB: "
          "`ulimit -l`, memlock in /etc/security/limits.conf, or LimitMEMLOCK "
          "of the service",
          FormatBytes(size), why,
          limit ? fmt::format("{} KiB", limit->count() / 1024) : "not set",
          CeilDiv(RoundUp(size, PageSize()), KiB(1))));
}

void SayNotBound(Log* log, Bytes size, int node, std::string_view why) {
  if (log == nullptr) return;
  log->WarnOnce(
      "host-slab-bind",
      fmt::format("{} of host memory are not bound to {}: {}. The kernel "
                  "places them, mostly well. In a container, allow mbind "
                  "(CAP_SYS_NICE), or start each rank under `numactl "
                  "--cpunodebind=N --membind=N`",
                  FormatBytes(size),
                  node < 0 ? "the caller's NUMA node"
                           : fmt::format("NUMA node {}", node),
                  why));
}

void SayNotKeptFromChildren(Log* log, std::string_view why) {
  if (log == nullptr) return;
  log->WarnOnce(
      "host-slab-fork",
      fmt::format("a child of fork() would be given pinned memory, since "
                  "madvise(MADV_DONTFORK) fails: {}. Start other processes "
                  "with spawn",
                  why));
}

class HostPages final : public SlabPages {
 public:
  HostPages(Slab memory, const HostSlabOptions& options,
            const internal::SlabSystem& system)
      : memory_(std::move(memory)), options_(options), system_(system) {}

  void Loosen() override {
    if (locked_) system_.Unlock(memory_.data(), Mapped());
    locked_ = false;
  }

  void Drop(std::byte* data, Bytes size) override {
    const Bytes from(data - memory_.data());
    CASTOR_CHECK(!locked_ && from >= Bytes(0) && from + size <= memory_.size());
    const Bytes begin = RoundUp(from, PageSize());
    const Bytes end =
        Bytes((from + size).count() / PageSize().count() * PageSize().count());
    if (begin >= end) return;
    // Where the system refuses, the pages stay, which costs memory alone.
    (void)system_.Drop(memory_.data() + begin.count(), end - begin);
  }

  void Settle() override {
    if (locked_) return;
    if (options_.lock) {
      const std::string unlocked = system_.Lock(memory_.data(), Mapped());
      locked_ = unlocked.empty();
      if (!locked_) {
        SayNotLocked(options_.log, memory_.size(), system_.LockLimit(),
                     unlocked);
      }
    }
    if (!locked_) Touch(memory_.data(), memory_.size());
  }

  bool locked() const override { return locked_; }

 private:
  Bytes Mapped() const { return RoundUp(memory_.size(), PageSize()); }

  const Slab memory_;
  const HostSlabOptions options_;
  const internal::SlabSystem& system_;
  bool locked_ = false;
};

// The same memory, with pages that may go.
Slab WithPages(Slab memory, const HostSlabOptions& options,
               const internal::SlabSystem& system) {
  const Tier tier = memory.tier();
  std::byte* const data = memory.data();
  const Bytes size = memory.size();
  auto pages = std::make_shared<HostPages>(std::move(memory), options, system);
  if (!options.coming.loose) pages->Settle();
  return Slab(tier, data, size, {}, std::move(pages));
}

const internal::SlabSystem& SystemOr(const internal::SlabSystem* system) {
  return system != nullptr ? *system : internal::RealSlabSystem();
}

}  // namespace

Slab::Slab(Tier tier, std::byte* data, Bytes size, Deleter deleter,
           std::shared_ptr<SlabPages> pages)
    : tier_(tier),
      data_(data),
      size_(size),
      deleter_(std::move(deleter)),
      pages_(std::move(pages)) {}

Slab::~Slab() {
  if (data_ != nullptr && deleter_) deleter_(data_, size_);
}

Slab::Slab(Slab&& other) noexcept
    : tier_(other.tier_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, Bytes(0))),
      deleter_(std::exchange(other.deleter_, nullptr)),
      pages_(std::exchange(other.pages_, nullptr)) {}

Slab& Slab::operator=(Slab&& other) noexcept {
  Slab taken(std::move(other));
  std::swap(tier_, taken.tier_);
  std::swap(data_, taken.data_);
  std::swap(size_, taken.size_);
  std::swap(deleter_, taken.deleter_);
  std::swap(pages_, taken.pages_);
  return *this;
}

Result<Slab> MakeSimulatedDeviceSlab(Bytes size,
                                     const internal::SlabSystem* system,
                                     const SlabComing& coming) {
  const internal::SlabSystem& of = SystemOr(system);
  internal::MemoryPromise promise;
  CASTOR_ASSIGN_OR_RETURN(
      Slab slab, MapSlab(Tier::kDevice, "simulated device memory", size, of,
                         coming.returned, &promise));
  if (slab.data() == nullptr) return slab;
  AdviseHugePages(slab, of);
  HostSlabOptions options;
  options.lock = false;
  options.coming = coming;
  return WithPages(std::move(slab), options, of);
}

Result<Slab> MakeHostSlab(Bytes size, const HostSlabOptions& options,
                          HostSlabFacts* facts) {
  const internal::SlabSystem& system = SystemOr(options.system);
  internal::MemoryPromise promise;
  CASTOR_ASSIGN_OR_RETURN(
      Slab slab, MapSlab(Tier::kHost, "host memory", size, system,
                         options.coming.returned - options.beside, &promise));
  HostSlabFacts had;
  if (slab.data() != nullptr) {
    // Where pages lie and how large they are is decided when they are touched,
    // which locking does.
    const Bytes mapped = RoundUp(size, PageSize());
    had.huge_pages = AdviseHugePages(slab, system);
    const std::string unbound =
        options.numa_node < 0
            ? system.BindToCallersNode(slab.data(), mapped)
            : system.BindToNode(slab.data(), mapped, options.numa_node);
    had.bound = unbound.empty();
    if (!had.bound) SayNotBound(options.log, size, options.numa_node, unbound);
    if (options.keep_from_children) {
      const std::string why = system.KeepFromChildren(slab.data(), mapped);
      if (!why.empty()) SayNotKeptFromChildren(options.log, why);
    }
    slab = WithPages(std::move(slab), options, system);
    had.locked = slab.pages()->locked();
  }
  if (facts != nullptr) *facts = had;
  return slab;
}

}  // namespace castor
