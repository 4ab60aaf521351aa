// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/memory/address_slab.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <system_error>

#include "chunk/base/check.h"
#include "chunk/text/units_text.h"

namespace castor {
namespace {

// There is none to keep.
class NoPages final : public SlabPages {
 public:
  void Loosen() override {}
  void Drop(std::byte*, Bytes) override {}
  void Settle() override {}
  bool locked() const override { return false; }
};

}  // namespace

Result<Slab> MakeAddressSlab(Tier tier, Bytes size) {
  CASTOR_CHECK_GE(size, Bytes(0));
  if (size == Bytes(0)) return Slab();
  void* const data =
      mmap(nullptr, static_cast<size_t>(size.count()), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return Unavailable(fmt::format("{} of addresses are not to be had: {}",
                                   FormatBytes(size),
                                   std::generic_category().message(errno)));
  }
  return Slab(
      tier, static_cast<std::byte*>(data), size,
      [](std::byte* begin, Bytes all) {
        const int gone = munmap(begin, static_cast<size_t>(all.count()));
        CASTOR_CHECK_EQ(gone, 0);
      },
      std::make_shared<NoPages>());
}

}  // namespace castor
