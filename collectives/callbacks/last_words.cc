// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/callbacks/last_words.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "collectives/callbacks/words_slot.h"

namespace castor {
namespace {

// A handler reaches nothing but what is static; set before it is installed.
struct sigaction before;

void WriteAndPassOn(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  internal::WriteWords(STDERR_FILENO);
  errno = error;
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    return before.sa_sigaction(signal, info, context);
  }
  if (before.sa_handler == SIG_IGN) return;
  // SA_RESETHAND has set the default again; it comes when this returns.
  if (before.sa_handler == SIG_DFL) {
    raise(signal);
    return;
  }
  before.sa_handler(signal);
}

}  // namespace

LastWords::LastWords() {
  struct sigaction action = {};
  ::sigaction(SIGTERM, nullptr, &before);
  action.sa_sigaction = WriteAndPassOn;
  action.sa_flags = SA_SIGINFO | SA_RESETHAND;
  ::sigaction(SIGTERM, &action, nullptr);
}

LastWords::~LastWords() { ::sigaction(SIGTERM, &before, nullptr); }

}  // namespace castor
