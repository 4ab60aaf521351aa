// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_C_API_ENGINE_LANES_IN_USE_H_
#define CASTOR_COLLECTIVES_C_API_ENGINE_LANES_IN_USE_H_

// Which lanes an engine's calls were for, and since when. A program that works
// on several streams says which one is current (castor_engine_use_lane) and
// nothing more. So memory that it has may be in use on every lane that was
// current since. In the engine's turn only.

#include <cstdint>
#include <utility>
#include <vector>

#include "offload/lane.h"

namespace castor::c_api {

class LanesInUse {
 public:
  explicit LanesInUse(Lane* first) : now_(first) {}

  Lane& now() const { return *now_; }
  void Use(Lane* lane) {
    if (lane == now_) return;
    ++changes_;
    Left(now_) = changes_;
    now_ = lane;
  }

  // What Since takes later.
  int64_t mark() const { return changes_; }
  // Calls `found(lane)` for each lane that was current since the mark, the one
  // that is current now included.
  template <typename Found>
  void Since(int64_t mark, Found&& found) const {
    found(*now_);
    for (const auto& [lane, left] : left_) {
      if (left > mark && lane != now_) found(*lane);
    }
  }

 private:
  int64_t& Left(Lane* lane) {
    for (auto& [known, left] : left_) {
      if (known == lane) return left;
    }
    return left_.emplace_back(lane, 0).second;
  }

  Lane* now_;
  int64_t changes_ = 0;
  // Which number the change had that ended the lane's last time.
  std::vector<std::pair<Lane*, int64_t>> left_;
};

}  // namespace castor::c_api

#endif  // CASTOR_COLLECTIVES_C_API_ENGINE_LANES_IN_USE_H_
