// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_LANES_START_THREAD_H_
#define CASTOR_OFFLOAD_LANES_START_THREAD_H_

// Where every thread of Castor begins, so that a system that allows no more of
// them ends a run with a sentence that names the limits. Constructors start
// threads, too, so the failure is an exception, ThreadLimit, and functions that
// return a Status turn that into one. Thread-safe.

#include <functional>
#include <stdexcept>
#include <thread>

#include "chunk/base/status.h"

namespace castor {

// what() says which limits may be raised.
class ThreadLimit : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  // Unavailable.
  Status status() const { return Unavailable(what()); }
};

// Throws ThreadLimit. Whoever has started threads before must then join them.
std::thread StartThread(std::function<void()> body);

// What `make` returns, a Status or a Result; Unavailable where it threw
// ThreadLimit.
template <typename Make>
auto OrThreadLimit(const Make& make) -> decltype(make()) {
  try {
    return make();
  } catch (const ThreadLimit& limit) {
    return limit.status();
  }
}

}  // namespace castor

#endif  // CASTOR_OFFLOAD_LANES_START_THREAD_H_
