// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_C_API_ENGINE_TURN_H_
#define CASTOR_COLLECTIVES_C_API_ENGINE_TURN_H_

// How calls of the C ABI come to an engine: from any thread, one at a time, in
// the process that made the world, and with waits that the program can end.
// Thread-safe.

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

#include "chunk/base/status.h"
#include "collectives/c_api/door.h"
#include "collectives/c_api/handles.h"
#include "offload/lanes/event.h"

namespace castor::c_api {

// How often this process is a fork's child of the one that loaded the library.
int64_t ForkGeneration();
// FailedPrecondition in a child of the process that was in `generation`:
// threads do not follow into a child, so nothing there would ever end.
Status CheckProcess(int64_t generation);

// As castor_set_interrupt.
void SetInterrupt(int32_t (*interrupt)(void* context), void* context);
// Whether the program asks waits to end. Calls its function.
bool Interrupted();
bool HasInterrupt();
// Why a world of two or more ranks ends where the program ends a wait.
Status InterruptedError();

// While this object lives, waits of the calling thread ask the program every
// 100 ms whether to end. Where the program says yes, `end` is called, once. The
// wait then goes on until `end` or the work itself completes its event.
class InterruptibleWaits final : public EventWaiter {
 public:
  explicit InterruptibleWaits(std::function<void()> end);
  ~InterruptibleWaits() override;
  InterruptibleWaits(const InterruptibleWaits&) = delete;
  InterruptibleWaits& operator=(const InterruptibleWaits&) = delete;

  void WaitFor(const Event& event) override;

 private:
  std::function<void()> end_;
  bool ended_ = false;
  EventWaiter* const before_;
};

// Runs `call`, whose waits are InterruptibleWaits.
template <typename Call>
Status Interruptibly(std::function<void()> end, Call&& call) {
  if (!HasInterrupt()) return std::forward<Call>(call)();
  const InterruptibleWaits waits(std::move(end));
  return std::forward<Call>(call)();
}

// Whose turn it is. A call that comes while another is under way waits for it.
class Turns {
 public:
  // FailedPrecondition where the calling thread has the turn, or is in a
  // callback that whoever has it waits for: the call comes from a callback
  // inside another one. Aborted where the program interrupts the wait.
  Status Take();
  void GiveBack();

 private:
  std::mutex mutex_;
  std::condition_variable free_;
  std::thread::id holder_;  // guarded by mutex_
};

// While it lives, the calling thread runs a callback that a call waits for
// which has the turn.
class InCallback {
 public:
  explicit InCallback(const Turns* turns);
  ~InCallback();
  InCallback(const InCallback&) = delete;
  InCallback& operator=(const InCallback&) = delete;

 private:
  const Turns* const before_;
};

// Runs `call` in the engine's turn. Engine is EngineEntry.
template <typename Engine, typename Call>
Status InTurn(Engine& engine, Call&& call) {
  CASTOR_RETURN_IF_ERROR(CheckProcess(engine.world->generation));
  CASTOR_RETURN_IF_ERROR(engine.turns.Take());
  const struct Turn {
    Turns& turns;
    ~Turn() { turns.GiveBack(); }
  } turn{engine.turns};
  if (engine.gone) return GoneError(HandleKind::kEngine);
  return Interruptibly([&engine] { engine.world->Interrupt(); },
                       [&] { return std::forward<Call>(call)(engine); });
}

// The same by the engine's handle, castor_engine, or const. `name` is that of
// the function of castor.h, which the compiler gives.
template <typename Handle, typename Call>
int32_t WithEngine(Handle* handle, Call&& call,
                   const char* name = __builtin_FUNCTION()) noexcept {
  return ThroughTheDoor(
      [&]() -> Status {
        if (handle == nullptr) return InvalidArgument("engine is null");
        using Engine = Use<std::remove_const_t<Handle>>;
        CASTOR_ASSIGN_OR_RETURN(const Engine engine, Engine::Of(handle));
        return InTurn(*engine, std::forward<Call>(call));
      },
      name);
}

}  // namespace castor::c_api

#endif  // CASTOR_COLLECTIVES_C_API_ENGINE_TURN_H_
