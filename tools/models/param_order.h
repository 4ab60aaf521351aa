// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_PARAM_ORDER_H_
#define CASTOR_TOOLS_MODELS_PARAM_ORDER_H_

// Part of the reader of models (model_reader.h): puts parameters into the order
// in which the family's reference code registers them, or in which a recorded
// step first used them (Fang et al. 2021 pack in registration order and lose
// where a model is not used as it is registered). Pure functions, thread-safe.

#include "chunk/base/status.h"
#include "placement/trace/trace_file.h"
#include "tools/models/families/family_model.h"
#include "tools/models/model_list.h"

namespace castor {

// Moves to list.dropped what the model does not have as a parameter, whatever
// the order: a tensor that the config ties to another which the file holds too,
// since the two share one, and tensors of parts that the reference code leaves
// out. Leaves `list` as it is where it holds nothing that the family knows.
void DropAbsent(const FamilyModel& family, ModelList& list);

// Does the same, then sorts list.params by `family`; those it does not know
// follow in natural order. Notes say where file and config disagree. False,
// with `list` as it was, where the file holds nothing that the family knows.
bool ApplyFamilyOrder(const FamilyModel& family, ModelList& list);

// Sorts list.params by `trace`, and says so in list.order. Malformed, with
// `list` as it was, where the trace names no parameters, lacks one of the
// model's, or has one that the model does not; the message names it, and the
// nearest name.
Status ApplyTraceOrder(const TraceFile& trace, ModelList& list);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_PARAM_ORDER_H_
