// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/twin/simulated_host.h"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <utility>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "offload/twin/simulated_link.h"

namespace castor {

struct SimulatedHost::Impl {
  std::optional<LinkModel> SpeedOf(HostPass pass) const {
    const std::optional<RateModel>& rate =
        pass == HostPass::kUpdate ? model.optimizer : model.memory;
    if (!rate) return std::nullopt;
    return LinkModel{rate->bytes_per_second, 0};
  }
  // Of a pass that begins now; when it ends.
  int64_t Book(int64_t ns) {
    std::lock_guard lock(mutex);
    free_ns = std::max(free_ns, timer->NowNs()) + ns;
    busy_ns += ns;
    return free_ns;
  }

  const SimulatedHostModel model;
  Timer* const timer;
  mutable std::mutex mutex;
  // Guarded by mutex.
  int64_t free_ns = 0;
  int64_t busy_ns = 0;
};

SimulatedHost::SimulatedHost(const SimulatedHostModel& model, Timer* timer)
    : impl_(new Impl{model, timer, {}, 0, 0}) {
  CASTOR_CHECK(timer != nullptr);
}

SimulatedHost::~SimulatedHost() = default;

void SimulatedHost::Queue(Lane& lane, HostPass pass, Bytes traffic,
                          Lane::Work work) {
  CASTOR_CHECK_GE(traffic, Bytes(0));
  if (impl_->model.dry) work = [] { return OkStatus(); };
  if (internal::Wires* const wires = impl_->model.wires; wires != nullptr) {
    const internal::Traffic kind = pass == HostPass::kUpdate
                                       ? internal::Traffic::kOptimizer
                                       : internal::Traffic::kMemoryPass;
    if (traffic == Bytes(0) || !wires->takes_time(kind)) {
      return lane.Run(std::move(work));
    }
    lane.RunAsync([wires, kind, traffic,
                   work = std::move(work)](EventSource source) mutable {
      Status status = work();
      if (!status.ok()) return source.Complete(std::move(status));
      wires->Begin(kind, traffic,
                   [source = std::move(source)] { source.Complete(); });
    });
    return;
  }
  const std::optional<LinkModel> speed = impl_->SpeedOf(pass);
  if (!speed) return lane.Run(std::move(work));
  lane.RunAsync([impl = impl_.get(), ns = WireNs(*speed, traffic),
                 work = std::move(work)](EventSource source) mutable {
    const int64_t end_ns = impl->Book(ns);
    Status status = work();
    if (impl->timer->NowNs() >= end_ns || !status.ok()) {
      return source.Complete(std::move(status));
    }
    impl->timer->At(end_ns,
                    [source = std::move(source)] { source.Complete(); });
  });
}

int64_t SimulatedHost::busy_ns() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->busy_ns;
}

}  // namespace castor
