// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_ZERO_CONFIG_H_
#define CASTOR_COLLECTIVES_ZERO_CONFIG_H_

// ZeroOptions as one JSON document, for programs in other languages and for
// files. Every key has the default of its option and may be left out:
//
//   {"schema": "castor.config/1",
//    "stage": 3, "clip_norm": 1.0, "prefetch_depth": 3, "policy": "planned",
//    "grad_mode": "separate", "accumulation_order": "each",
//    "device_budget_bytes": 67108864, "host_budget_bytes": 100663296,
//    "nvme": [{"directory": "/mnt/nvme0", "size_bytes": 1073741824}],
//    "chunk": {"bytes": 4194304, "min_bytes": 1048576,
//              "max_bytes": 8388608, "align_elements": 64},
//    "optimizer": {"kind": "adamw", "beta1": 0.9, "beta2": 0.999,
//                  "eps": 1e-8, "weight_decay": 0.01, "momentum": 0,
//                  "dampening": 0, "nesterov": false, "moment_dtype": "F32",
//                  "stochastic_rounding": true, "seed": 0},
//    "groups": [{"name": "norms", "lr_scale": 1, "weight_decay": 0}],
//    "loss_scale": {"kind": "dynamic", "initial": 65536, "growth": 2,
//                   "growth_interval": 2000, "backoff": 0.5,
//                   "hysteresis": 1, "least": 1, "most": 4294967296}}
//
// An optimizer's numbers begin with what its kind takes unless told otherwise,
// so "kind" comes first. What numbers mean together, ZeroEngine::Create checks.
// Pure function, thread-safe.

#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"
#include "collectives/zero_options.h"

namespace castor {

// InvalidArgument, with line and column, where `text` is no such document; for
// a key that there is not, with the nearest that there is. Collaborators are as
// in a ZeroOptions{}.
Result<ZeroOptions> ParseZeroConfig(std::string_view text);

// The same on top of `base`: what `text` leaves out is as it was there. Adds to
// `said` the names of what it does say: "stage", "optimizer.beta1",
// "nvme[].directory".
Result<ZeroOptions> ParseZeroConfig(std::string_view text, ZeroOptions base,
                                    std::vector<std::string>* said);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_ZERO_CONFIG_H_
