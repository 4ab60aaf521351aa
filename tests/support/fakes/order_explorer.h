// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_FAKES_ORDER_EXPLORER_H_
#define CASTOR_TESTS_SUPPORT_FAKES_ORDER_EXPLORER_H_

// Runs a small system in every order that its choices allow: depth first, from
// the start each time. What is run must be the same function of the answers to
// Choose every time. Owner thread only.
//
//   OrderExplorer orders;
//   do {
//     System system;
//     while (system.choices() > 0) system.Do(orders.Choose(system.choices()));
//     // judge how it ended
//   } while (orders.Next());

#include <cstddef>
#include <cstdint>
#include <vector>

#include "chunk/base/check.h"

namespace castor {

class OrderExplorer {
 public:
  // What to do next in this order: below `of`, which is at least 1.
  size_t Choose(size_t of) {
    CASTOR_CHECK_GE(of, size_t{1});
    if (depth_ == path_.size()) path_.push_back({0, of});
    CASTOR_CHECK_EQ(path_[depth_].of, of);  // else it was not the same function
    return path_[depth_++].chosen;
  }

  // Goes to the next order. False, when there is none: all were run.
  bool Next() {
    ++orders_;
    CASTOR_CHECK_EQ(depth_, path_.size());
    depth_ = 0;
    while (!path_.empty() && path_.back().chosen + 1 == path_.back().of) {
      path_.pop_back();
    }
    if (path_.empty()) return false;
    ++path_.back().chosen;
    return true;
  }

  // That were run to their end.
  int64_t orders() const { return orders_; }

 private:
  struct Choice {
    size_t chosen;
    size_t of;
  };

  std::vector<Choice> path_;
  size_t depth_ = 0;  // choices of this order made so far
  int64_t orders_ = 0;
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_FAKES_ORDER_EXPLORER_H_
