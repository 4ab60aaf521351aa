// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_MEMORY_SLAB_H_
#define CASTOR_OFFLOAD_MEMORY_SLAB_H_

// A Slab is one contiguous range of memory of one tier, allocated at start and
// never grown: tier pools cut their slots from it. It owns its memory. Zeroed
// when made. Move-only; the memory itself has no thread contract.

#include <cstddef>
#include <functional>
#include <memory>

#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"

namespace castor {

namespace internal {
class SlabSystem;
}

// The pages of a slab in host memory, which may go and come back while the slab
// stays where it is. One thread at a time.
class SlabPages {
 public:
  virtual ~SlabPages() = default;

  // Unlocks the pages. They stay.
  virtual void Loosen() = 0;
  // Gives the whole pages within `size` bytes from `data` on back to the
  // system. Touched again, they are there and zero. REQUIRES: loose.
  virtual void Drop(std::byte* data, Bytes size) = 0;
  // Makes all pages present, and locks them as far as is allowed. Blocks.
  virtual void Settle() = 0;
  // Whether they cannot be swapped out.
  virtual bool locked() const = 0;
};

// How the pages of a new slab in host memory come.
struct SlabComing {
  // As they are touched, until Settle; else at once.
  bool loose = false;
  // Memory that somebody gives back before as much of this is touched. What the
  // machine has available may be less by as much.
  Bytes returned = {};
};

class Slab {
 public:
  using Deleter = std::function<void(std::byte* data, Bytes size)>;

  Slab() = default;  // empty
  Slab(Tier tier, std::byte* data, Bytes size, Deleter deleter,
       std::shared_ptr<SlabPages> pages = nullptr);
  ~Slab();
  Slab(Slab&& other) noexcept;
  Slab& operator=(Slab&& other) noexcept;

  Tier tier() const { return tier_; }
  std::byte* data() const { return data_; }
  Bytes size() const { return size_; }
  // Null where they cannot go: an empty slab, and memory of a device.
  const std::shared_ptr<SlabPages>& pages() const { return pages_; }

 private:
  Tier tier_ = Tier::kHost;
  std::byte* data_ = nullptr;
  Bytes size_;
  Deleter deleter_;
  std::shared_ptr<SlabPages> pages_;
};

// The memory of the simulated device: ordinary memory of the host, page
// aligned, huge pages where allowed, touched. Unavailable, with both numbers,
// where the machine (or its cgroup) has less memory available than `size`.
// `system` is for tests; it must outlive the slab. REQUIRES: size >= 0.
Result<Slab> MakeSimulatedDeviceSlab(
    Bytes size, const internal::SlabSystem* system = nullptr,
    const SlabComing& coming = {});

struct HostSlabOptions {
  Log* log = nullptr;  // where a fallback is said once; may be null
  // For tests; must outlive the slab. Null: the operating system.
  const internal::SlabSystem* system = nullptr;
  // The NUMA node to lie on; -1: the one of the calling thread.
  int numa_node = -1;
  // Whether to mlock; else the memory is touched only. For what a driver pins.
  bool lock = true;
  // Whether children of fork() get none of it (MADV_DONTFORK), as what a
  // driver pins, or may pin: a child's copies of pinned pages are not those
  // that the device sees. A refusal is said once.
  bool keep_from_children = false;
  SlabComing coming = {};
  // So much more has to be available: others are to find it.
  Bytes beside = {};
};

struct HostSlabFacts {
  bool locked = false;      // the pages cannot be swapped out
  bool bound = false;       // prefers the NUMA node asked for
  bool huge_pages = false;  // transparent huge pages were asked for and allowed
  bool registered = false;  // with a device, which copies it at full speed
};

// Host memory fit for device copies: one mapping of exactly `size` rounded up
// to a page, huge pages where allowed, bound by hwloc to a NUMA node, mlock'ed
// where the limit allows. Where locking or binding is refused the memory is
// touched and left so, which is said once with the remedy.
// Unavailable as above. `facts`, when given, tells what was had, of a loose
// slab nothing of locks. `options` outlive the slab's pages as the system does.
// REQUIRES: size >= 0.
Result<Slab> MakeHostSlab(Bytes size, const HostSlabOptions& options,
                          HostSlabFacts* facts = nullptr);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_MEMORY_SLAB_H_
