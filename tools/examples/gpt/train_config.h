// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_TRAIN_CONFIG_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_TRAIN_CONFIG_H_

// The file of --config beside the flags. Reads that file; thread-safe.

#include <span>
#include <string_view>

#include "chunk/base/status.h"
#include "tools/examples/gpt/train_flags.h"

namespace castor::gpt {

// A flag, and a config's key that says the same, or what such keys begin with.
struct FlagAndKey {
  std::string_view flag;
  std::string_view key;
};
// Of all flags that a config may stand for.
std::span<const FlagAndKey> FlagsAndKeys();

// Where a config is named: keeps its text, and has the flags be as it says of
// rates, ranks and checkpoints; what it says of the engine OptionsOf takes.
// InvalidArgument, naming both, where a flag that was given says the same;
// errors of the file.
Status TakeConfigFile(TrainFlags* flags);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_TRAIN_CONFIG_H_
