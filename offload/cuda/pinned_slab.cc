// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/pinned_slab.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "chunk/base/tier.h"
#include "chunk/text/units_text.h"

namespace castor {
namespace {

void SayNotRegistered(const CudaCore& core, Log* log, Bytes size, int error) {
  if (log == nullptr) return;
  log->WarnOnce(
      "cuda-host-register",
      fmt::format("{} of host memory stay unregistered: {}. Copies between "
                  "them and the device go through the driver's own buffers, at "
                  "about half the speed. Lower the host budget, or leave the "
                  "machine more free memory than the budgets of all ranks",
                  FormatBytes(size), core.Describe(error, "cudaHostRegister")));
}

// Registered with the driver, which pins them, once they are settled.
class PinnedPages final : public SlabPages {
 public:
  PinnedPages(std::shared_ptr<CudaCore> core, Slab memory, Log* log)
      : core_(std::move(core)), memory_(std::move(memory)), log_(log) {}
  ~PinnedPages() override { Loosen(); }

  void Loosen() override {
    if (registered_) {
      const CudaCore::Scope scope(*core_);
      core_
          ->Check(core_->calls().HostUnregister(memory_.data()),
                  "cudaHostUnregister")
          .IgnoreError();  // the device has it
    }
    registered_ = false;
    memory_.pages()->Loosen();
  }

  void Drop(std::byte* data, Bytes size) override {
    memory_.pages()->Drop(data, size);
  }

  void Settle() override {
    if (registered_) return;
    const Bytes mapped = RoundUp(memory_.size(), Bytes(sysconf(_SC_PAGESIZE)));
    const CudaCore::Scope scope(*core_);
    const int error =
        core_->calls().HostRegister(memory_.data(), mapped.count());
    registered_ = error == kCudaOk;
    if (!registered_) {
      SayNotRegistered(*core_, log_, memory_.size(), error);
      memory_.pages()->Settle();
    }
  }

  bool locked() const override {
    return registered_ || memory_.pages()->locked();
  }
  bool registered() const { return registered_; }

 private:
  const std::shared_ptr<CudaCore> core_;
  const Slab memory_;
  Log* const log_;
  bool registered_ = false;
};

}  // namespace

Result<Slab> MakePinnedSlab(std::shared_ptr<CudaCore> core, Bytes size,
                            const HostSlabOptions& options,
                            HostSlabFacts* facts) {
  // Locked, where the driver refuses to pin it.
  HostSlabOptions beneath = options;
  beneath.keep_from_children = true;
  beneath.coming.loose = true;
  CASTOR_ASSIGN_OR_RETURN(Slab memory, MakeHostSlab(size, beneath, facts));
  if (memory.data() == nullptr) return memory;
  std::byte* const data = memory.data();
  auto pages = std::make_shared<PinnedPages>(std::move(core), std::move(memory),
                                             options.log);
  if (!options.coming.loose) pages->Settle();
  if (facts != nullptr) {
    facts->registered = pages->registered();
    facts->locked = pages->locked();
  }
  return Slab(Tier::kHost, data, size, {}, std::move(pages));
}

}  // namespace castor
