// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_MPI_INTERNAL_WORDS_SLOT_H_
#define CASTOR_COLLECTIVES_MPI_INTERNAL_WORDS_SLOT_H_

// What a world would say if the process were told to end now, kept where a
// signal handler finds it: in static memory, as characters that may be read at
// any instant. A handler that reads while two sentences in a row are written
// prints a mixture of both. One thread per slot; the handler's part is
// async-signal-safe.

#include <cstdint>
#include <string_view>

namespace castor::internal {

enum class WordsWeight : uint8_t {
  kIdle,     // nobody holds this world up
  kMatters,  // it waits for somebody, or has failed
};

class WordsSlot {
 public:
  // Takes one of a few slots; with none left it says nothing.
  WordsSlot();
  ~WordsSlot();
  WordsSlot(const WordsSlot&) = delete;
  WordsSlot& operator=(const WordsSlot&) = delete;

  // One line without its end; cut where it is too long.
  void Say(std::string_view line, WordsWeight weight);
  // There is nothing to say any more.
  void Hush();

 private:
  int slot_ = -1;
};

// Writes to `fd` the lines that matter, or, where none does, the one that was
// said last. Async-signal-safe.
void WriteWords(int fd);

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_MPI_INTERNAL_WORDS_SLOT_H_
