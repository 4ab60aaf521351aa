// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_TRACE_ORDER_H_
#define CASTOR_TOOLS_MODELS_TRACE_ORDER_H_

// Puts parameters into the order in which a recorded step first used them
// (Fang et al. 2021 pack in registration order and lose where a model is not
// used as it is registered). Pure function, thread-safe.

#include "chunk/base/status.h"
#include "placement/trace_file.h"
#include "tools/models/model_list.h"

namespace castor {

// Sorts list.params by `trace`, and says so in list.order. Malformed, with
// `list` as it was, where the trace names no parameters, lacks one of the
// model's, or has one that the model does not; the message names it, and the
// nearest name.
Status ApplyTraceOrder(const TraceFile& trace, ModelList& list);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_TRACE_ORDER_H_
