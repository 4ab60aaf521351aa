// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_C_API_HANDLES_H_
#define CASTOR_COLLECTIVES_C_API_HANDLES_H_

// Handles of the C ABI are numbers, never addresses: each stands for an entry
// of one table, and every call looks the number up. A number that Castor did
// not give, that stands for something else, or whose entry went, is refused
// with a sentence, and nothing is touched. Thread-safe.

#include <cstdint>
#include <memory>
#include <utility>

#include "chunk/base/status.h"
#include "collectives/c_api/castor.h"

namespace castor::c_api {

enum class HandleKind : uint8_t {
  kWorld = 1,
  kDevice,
  kLane,
  kEngine,
  kParamLease,
  kMemoryLease,
  kPinnedArena,
};

// What a type of castor.h stands for: an EntryOf.
template <typename Handle>
struct StandsFor;

template <typename E, HandleKind k>
struct EntryOf {
  using Entry = E;
  static constexpr HandleKind kKind = k;
};

namespace handles {

// A number for `entry`, which stays where it is until FreeNumber.
uint64_t GiveNumber(HandleKind kind, void* entry);

// The entry, which a Claim then finds in use until Unpin. InvalidArgument where
// the number stands for no such entry; FailedPrecondition while a Claim has it.
Result<void*> Pin(HandleKind kind, uint64_t number);
void Unpin(uint64_t number);

// The entry, for one caller alone: until Unclaim, or for good by FreeNumber.
// As Pin; FailedPrecondition as well while the entry is pinned.
Result<void*> ClaimEntry(HandleKind kind, uint64_t number);
void Unclaim(uint64_t number);
void FreeNumber(uint64_t number);

// From now on the number stands for nothing. Returns when no call has the entry
// pinned.
void EndNumber(uint64_t number);

inline uint64_t NumberOf(const void* handle) {
  static_assert(sizeof(uintptr_t) == sizeof(uint64_t));
  return reinterpret_cast<uintptr_t>(handle);
}

}  // namespace handles

// Why a call that waited finds the entry gone.
Status GoneError(HandleKind kind);

template <typename Handle>
Handle* GiveHandle(std::unique_ptr<typename StandsFor<Handle>::Entry> entry) {
  const uint64_t number =
      handles::GiveNumber(StandsFor<Handle>::kKind, entry.get());
  entry.release();  // only now: a number may need memory that is not there
  return reinterpret_cast<Handle*>(static_cast<uintptr_t>(number));
}

// What a handle stands for, which stays while this lives. Move-only.
template <typename Handle>
class Use {
 public:
  using Entry = typename StandsFor<Handle>::Entry;

  // As handles::Pin.
  static Result<Use> Of(const Handle* handle) {
    const uint64_t number = handles::NumberOf(handle);
    CASTOR_ASSIGN_OR_RETURN(void* const entry,
                            handles::Pin(StandsFor<Handle>::kKind, number));
    return Use(static_cast<Entry*>(entry), number);
  }
  Use() = default;
  ~Use() {
    if (entry_ != nullptr) handles::Unpin(number_);
  }
  Use(Use&& other) noexcept { *this = std::move(other); }
  Use& operator=(Use&& other) noexcept {
    std::swap(entry_, other.entry_);
    std::swap(number_, other.number_);
    return *this;
  }

  Entry* get() const { return entry_; }
  Entry* operator->() const { return entry_; }
  Entry& operator*() const { return *entry_; }

 private:
  Use(Entry* entry, uint64_t number) : entry_(entry), number_(number) {}

  Entry* entry_ = nullptr;
  uint64_t number_ = 0;
};

// What a handle stands for, for whoever ends it. Without Delete() the handle is
// as before. Move-only.
template <typename Handle>
class Claim {
 public:
  using Entry = typename StandsFor<Handle>::Entry;

  // As handles::ClaimEntry.
  static Result<Claim> Of(const Handle* handle) {
    const uint64_t number = handles::NumberOf(handle);
    CASTOR_ASSIGN_OR_RETURN(
        void* const entry,
        handles::ClaimEntry(StandsFor<Handle>::kKind, number));
    return Claim(static_cast<Entry*>(entry), number);
  }
  ~Claim() {
    if (entry_ != nullptr) handles::Unclaim(number_);
  }
  Claim(Claim&& other) noexcept { *this = std::move(other); }
  Claim& operator=(Claim&& other) noexcept {
    std::swap(entry_, other.entry_);
    std::swap(number_, other.number_);
    return *this;
  }

  Entry* operator->() const { return entry_; }
  void Delete() {
    delete std::exchange(entry_, nullptr);
    handles::FreeNumber(number_);
  }

 private:
  Claim(Entry* entry, uint64_t number) : entry_(entry), number_(number) {}

  Entry* entry_ = nullptr;
  uint64_t number_ = 0;
};

// As handles::EndNumber. The caller deletes what the handle stood for.
template <typename Handle>
void EndHandle(const Handle* handle) {
  handles::EndNumber(handles::NumberOf(handle));
}

}  // namespace castor::c_api

#endif  // CASTOR_COLLECTIVES_C_API_HANDLES_H_
