// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_BASE_UNIQUE_FUNCTION_H_
#define CASTOR_CHUNK_BASE_UNIQUE_FUNCTION_H_

// A callable with one owner: called as a std::function is, moved and never
// copied, so it may hold what cannot be copied. A callable of at most
// kInlineBytes lies inside it, without an allocation: a step queues dozens of
// callables for each chunk. Thread-compatible.

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "chunk/base/check.h"

namespace castor {

template <typename Signature>
class UniqueFunction;

template <typename R, typename... Args>
class UniqueFunction<R(Args...)> {
 public:
  static constexpr size_t kInlineBytes = 48;

  // Empty, as one that was moved from.
  UniqueFunction() = default;
  UniqueFunction(std::nullptr_t) {}  // NOLINT: converts as std::function does

  // Empty where `callable` is an empty std::function or a null pointer.
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, UniqueFunction> &&
           std::is_invocable_r_v<R, std::decay_t<F>&, Args...>)
      UniqueFunction(F&& callable) {  // NOLINT: converts as std::function does
    using Held = std::decay_t<F>;
    if constexpr (kMayBeNull<Held>) {
      if (callable == nullptr) return;
    }
    if constexpr (kFits<Held>) {
      ::new (static_cast<void*>(storage_)) Held(std::forward<F>(callable));
      held_ = &kInline<Held>;
    } else {
      ::new (static_cast<void*>(storage_))
          Held*(new Held(std::forward<F>(callable)));
      held_ = &kOutside<Held>;
    }
  }

  UniqueFunction(UniqueFunction&& other) noexcept { Take(other); }
  UniqueFunction& operator=(UniqueFunction&& other) noexcept {
    if (this != &other) {
      Clear();
      Take(other);
    }
    return *this;
  }
  UniqueFunction(const UniqueFunction&) = delete;
  UniqueFunction& operator=(const UniqueFunction&) = delete;
  ~UniqueFunction() { Clear(); }

  explicit operator bool() const { return held_ != nullptr; }

  // REQUIRES: not empty.
  R operator()(Args... args) {
    CASTOR_CHECK(held_ != nullptr);
    return held_->call(storage_, std::forward<Args>(args)...);
  }

 private:
  // What is done with the callable that `storage` holds, or points to.
  struct Operations {
    R (*call)(std::byte* storage, Args&&... args);
    // Into `to`; nothing is left in `from` to destroy.
    void (*move)(std::byte* to, std::byte* from) noexcept;
    void (*destroy)(std::byte* storage) noexcept;
  };

  template <typename Held>
  static constexpr bool kFits = sizeof(Held) <= kInlineBytes &&
                                alignof(Held) <= alignof(void*) &&
                                std::is_nothrow_move_constructible_v<Held>;

  template <typename Held>
  static constexpr bool kMayBeNull = requires(const Held& held) {
    Held(nullptr);
    held == nullptr;
  };

  template <typename T>
  static T& At(std::byte* storage) {
    return *std::launder(reinterpret_cast<T*>(storage));
  }

  template <typename Held>
  static constexpr Operations kInline = {
      .call = [](std::byte* storage, Args&&... args) -> R {
        return static_cast<R>(At<Held>(storage)(std::forward<Args>(args)...));
      },
      .move =
          [](std::byte* to, std::byte* from) noexcept {
            ::new (static_cast<void*>(to)) Held(std::move(At<Held>(from)));
            std::destroy_at(&At<Held>(from));
          },
      .destroy =
          [](std::byte* storage) noexcept {
            std::destroy_at(&At<Held>(storage));
          },
  };

  template <typename Held>
  static constexpr Operations kOutside = {
      .call = [](std::byte* storage, Args&&... args) -> R {
        return static_cast<R>(
            (*At<Held*>(storage))(std::forward<Args>(args)...));
      },
      .move =
          [](std::byte* to, std::byte* from) noexcept {
            ::new (static_cast<void*>(to)) Held*(At<Held*>(from));
          },
      .destroy = [](std::byte* storage) noexcept { delete At<Held*>(storage); },
  };

  void Take(UniqueFunction& other) noexcept {
    held_ = std::exchange(other.held_, nullptr);
    if (held_ != nullptr) held_->move(storage_, other.storage_);
  }
  void Clear() noexcept {
    if (held_ == nullptr) return;
    // Empty before the callable goes: its end may ask.
    std::exchange(held_, nullptr)->destroy(storage_);
  }

  const Operations* held_ = nullptr;  // null: empty
  alignas(void*) std::byte storage_[kInlineBytes];
};

}  // namespace castor

#endif  // CASTOR_CHUNK_BASE_UNIQUE_FUNCTION_H_
