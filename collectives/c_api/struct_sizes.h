// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_C_API_STRUCT_SIZES_H_
#define CASTOR_COLLECTIVES_C_API_STRUCT_SIZES_H_

// How structs of the C ABI are read and written whose other side may know an
// older or a newer version: they only ever grow, at their end, and begin with
// struct_size. Pure functions, thread-safe.

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "chunk/base/status.h"
#include "collectives/c_api/castor.h"

namespace castor::c_api {

// The size of the first version, up to the member that was its last: no program
// has less. It never changes.
template <typename T>
inline constexpr size_t kFirstSize = 0;

#define CASTOR_FIRST_VERSION(type, last)     \
  template <>                                \
  inline constexpr size_t kFirstSize<type> = \
      offsetof(type, last) + sizeof(type::last)

CASTOR_FIRST_VERSION(castor_pinned_arena_stats, metadata_bytes);
CASTOR_FIRST_VERSION(castor_world_options, log_context);
CASTOR_FIRST_VERSION(castor_callbacks, abort);
CASTOR_FIRST_VERSION(castor_record_options, last_step);
CASTOR_FIRST_VERSION(castor_device_info, reserved);
CASTOR_FIRST_VERSION(castor_allocator, release);
CASTOR_FIRST_VERSION(castor_seal_options, micro_batches);
CASTOR_FIRST_VERSION(castor_reseal_options, seal);
CASTOR_FIRST_VERSION(castor_step, not_finite);
CASTOR_FIRST_VERSION(castor_hyper_parameters, momentum);
CASTOR_FIRST_VERSION(castor_loss_scale, reserved);
CASTOR_FIRST_VERSION(castor_schedule, reserved);
CASTOR_FIRST_VERSION(castor_param_info, homes);
CASTOR_FIRST_VERSION(castor_save_options, reserved);
CASTOR_FIRST_VERSION(castor_load_options, convert);
CASTOR_FIRST_VERSION(castor_park, shortfall);
CASTOR_FIRST_VERSION(castor_engine_stats, chunk_bytes);

#undef CASTOR_FIRST_VERSION

template <typename T>
Status CheckStruct(const T& theirs) {
  static_assert(kFirstSize<T> > 0, "it is in the list above");
  if (theirs.struct_size >= kFirstSize<T>) return OkStatus();
  return InvalidArgument(
      "struct_size is smaller than the struct ever was: set it to sizeof of "
      "the struct before the call");
}

// What both sides know of `theirs`; zeros for the rest.
template <typename T>
T TakeStruct(const T& theirs) {
  T ours = {};
  std::memcpy(&ours, &theirs, std::min(sizeof(T), theirs.struct_size));
  return ours;
}
template <typename T>
void GiveStruct(T ours, T* theirs) {
  ours.struct_size = theirs->struct_size;
  std::memcpy(theirs, &ours, std::min(sizeof(T), theirs->struct_size));
}

}  // namespace castor::c_api

#endif  // CASTOR_COLLECTIVES_C_API_STRUCT_SIZES_H_
