// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/slab.h"

#include <fmt/format.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/units_text.h"
#include "offload/internal/available_memory.h"
#include "offload/internal/slab_system.h"

namespace castor {
namespace {

// Below this a huge page holds more than the slab.
constexpr Bytes kHugePagesFrom = MiB(2);

Bytes PageSize() { return Bytes(sysconf(_SC_PAGESIZE)); }

// A mapping of `size` rounded up to a page, with nothing touched yet.
Result<Slab> MapSlab(Tier tier, std::string_view what, Bytes size,
                     const internal::SlabSystem& system) {
  CASTOR_CHECK_GE(size, Bytes(0));
  if (size == Bytes(0)) return Slab(tier, nullptr, size, {});
  const std::optional<internal::AvailableMemory> available = system.Available();
  if (available && size > available->bytes) {
    return Unavailable(fmt::format(
        "{} of {} were asked for, but {} are available here ({}): lower the "
        "{} budget, use fewer ranks, or free memory",
        FormatBytes(size), what, FormatBytes(available->bytes),
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
void Touch(std::byte* data, Bytes size) {
  const int64_t page = PageSize().count();
  for (int64_t at = 0; at < size.count(); at += page) {
    *const_cast<volatile std::byte*>(data + at) = std::byte{0};
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

const internal::SlabSystem& SystemOr(const internal::SlabSystem* system) {
  return system != nullptr ? *system : internal::RealSlabSystem();
}

}  // namespace

Slab::Slab(Tier tier, std::byte* data, Bytes size, Deleter deleter)
    : tier_(tier), data_(data), size_(size), deleter_(std::move(deleter)) {}

Slab::~Slab() {
  if (data_ != nullptr && deleter_) deleter_(data_, size_);
}

Slab::Slab(Slab&& other) noexcept
    : tier_(other.tier_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, Bytes(0))),
      deleter_(std::exchange(other.deleter_, nullptr)) {}

Slab& Slab::operator=(Slab&& other) noexcept {
  Slab taken(std::move(other));
  std::swap(tier_, taken.tier_);
  std::swap(data_, taken.data_);
  std::swap(size_, taken.size_);
  std::swap(deleter_, taken.deleter_);
  return *this;
}

Result<Slab> MakeSimulatedDeviceSlab(Bytes size,
                                     const internal::SlabSystem* system) {
  CASTOR_ASSIGN_OR_RETURN(
      Slab slab, MapSlab(Tier::kDevice, "simulated device memory", size,
                         SystemOr(system)));
  AdviseHugePages(slab, SystemOr(system));
  Touch(slab.data(), slab.size());
  return slab;
}

Result<Slab> MakeHostSlab(Bytes size, const HostSlabOptions& options,
                          HostSlabFacts* facts) {
  const internal::SlabSystem& system = SystemOr(options.system);
  CASTOR_ASSIGN_OR_RETURN(Slab slab,
                          MapSlab(Tier::kHost, "host memory", size, system));
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
    if (options.lock) {
      const std::string unlocked = system.Lock(slab.data(), mapped);
      had.locked = unlocked.empty();
      if (!had.locked) {
        SayNotLocked(options.log, size, system.LockLimit(), unlocked);
      }
    }
    if (!had.locked) Touch(slab.data(), size);
  }
  if (facts != nullptr) *facts = had;
  return slab;
}

}  // namespace castor
