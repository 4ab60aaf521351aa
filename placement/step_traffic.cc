// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/step_traffic.h"

#include <cstddef>

namespace castor {

LinkTraffic& LinkTraffic::operator+=(const LinkTraffic& other) {
  bytes += other.bytes;
  transfers += other.transfers;
  return *this;
}

StepTraffic& StepTraffic::operator+=(const StepTraffic& other) {
  for (size_t from = 0; from < moved.size(); ++from) {
    for (size_t to = 0; to < moved[from].size(); ++to) {
      moved[from][to] += other.moved[from][to];
    }
  }
  all_gather += other.all_gather;
  reduce_scatter += other.reduce_scatter;
  all_gather_steps += other.all_gather_steps;
  reduce_scatter_steps += other.reduce_scatter_steps;
  norm += other.norm;
  agreed += other.agreed;
  agreement += other.agreement;
  gathers += other.gathers;
  fetches += other.fetches;
  updated_on_device += other.updated_on_device;
  updated_on_host += other.updated_on_host;
  update_bytes += other.update_bytes;
  sum_bytes += other.sum_bytes;
  return *this;
}

}  // namespace castor
