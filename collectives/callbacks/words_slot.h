// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_CALLBACKS_WORDS_SLOT_H_
#define CASTOR_COLLECTIVES_CALLBACKS_WORDS_SLOT_H_

// What a world would say if the process were told to end now, kept where a
// signal handler finds it: in static memory, as characters that may be read at
// any instant. A handler that reads while two sentences in a row are written
// prints a mixture of both. A sentence takes longer to make than many an
// operation does, so a world says only now and then whom it waits for, but of
// every operation which one it is at: where what was said is over, that is what
// is left to say. One thread of a slot at a time; the handler's part is
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
  // Takes one of a few slots; with none left it says nothing. `who`: how a line
  // begins that is made of numbers; cut as Say's.
  explicit WordsSlot(std::string_view who = {});
  ~WordsSlot();
  WordsSlot(const WordsSlot&) = delete;
  WordsSlot& operator=(const WordsSlot&) = delete;

  // One line without its end; cut where it is too long.
  void Say(std::string_view line, WordsWeight weight);
  // The world is at this operation, or at the end of all up to it.
  void At(int64_t operation, bool under_way);
  // What was said holds no more: until the next Say, At's numbers are the line.
  void Outdate();
  // There is nothing to say any more.
  void Hush();

 private:
  int slot_ = -1;
};

// Writes to `fd` the lines that matter, or, where none does, that of the world
// that went on last. Async-signal-safe.
void WriteWords(int fd);

}  // namespace castor::internal

#endif  // CASTOR_COLLECTIVES_CALLBACKS_WORDS_SLOT_H_
