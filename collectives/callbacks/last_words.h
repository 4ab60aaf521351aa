// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CALLBACKS_LAST_WORDS_H_
#define CASTOR_COLLECTIVES_CALLBACKS_LAST_WORDS_H_

// When one process of an MPI job dies, mpirun ends all others by SIGTERM, and
// soon after by SIGKILL: too soon for any timeout. What is left to say is what
// each was waiting for: rank, chunk and moment.
//
// While one lives, SIGTERM has every world of this process
// (callback_communicator.h) that waits for somebody write one line to the
// standard error, or one world where none does; then what the signal did before
// is done. A second SIGTERM does what it does by default. Thread-safe, but for
// the making, which belongs to the main thread.

namespace castor {

// REQUIRES: one at a time.
class LastWords {
 public:
  LastWords();
  ~LastWords();
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;
};

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_CALLBACKS_LAST_WORDS_H_
