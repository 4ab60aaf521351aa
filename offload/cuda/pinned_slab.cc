// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/pinned_slab.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "chunk/base/tier.h"
#include "chunk/base/units_text.h"

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

}  // namespace

Result<Slab> MakePinnedSlab(std::shared_ptr<CudaCore> core, Bytes size,
                            const HostSlabOptions& options,
                            HostSlabFacts* facts) {
  HostSlabOptions unlocked = options;
  unlocked.lock = false;
  unlocked.keep_from_children = true;
  HostSlabFacts had;
  CASTOR_ASSIGN_OR_RETURN(Slab memory, MakeHostSlab(size, unlocked, &had));
  if (memory.data() != nullptr) {
    const Bytes mapped = RoundUp(size, Bytes(sysconf(_SC_PAGESIZE)));
    const CudaCore::Scope scope(*core);
    const int error = core->calls().HostRegister(memory.data(), mapped.count());
    had.registered = error == kCudaOk;
    if (had.registered) {
      had.locked = true;
      std::byte* const data = memory.data();
      auto kept = std::make_shared<Slab>(std::move(memory));
      memory = Slab(Tier::kHost, data, size,
                    [core = std::move(core), kept](std::byte* start, Bytes) {
                      const CudaCore::Scope scope(*core);
                      core->Check(core->calls().HostUnregister(start),
                                  "cudaHostUnregister")
                          .IgnoreError();  // the device has it
                    });
    } else {
      SayNotRegistered(*core, options.log, size, error);
      memory = Slab();
      CASTOR_ASSIGN_OR_RETURN(memory, MakeHostSlab(size, options, &had));
    }
  }
  if (facts != nullptr) *facts = had;
  return memory;
}

}  // namespace castor
