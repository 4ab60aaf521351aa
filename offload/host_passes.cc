// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/host_passes.h"

#include <utility>

namespace castor {
namespace {

class MachinePasses final : public HostPasses {
 public:
  void Queue(Lane& lane, HostPass, Bytes, Lane::Work work) override {
    lane.Run(std::move(work));
  }
  bool overlap() const override { return true; }
};

}  // namespace

HostPasses& HostPasses::Machine() {
  static MachinePasses passes;
  return passes;
}

}  // namespace castor
