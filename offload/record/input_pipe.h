// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_OFFLOAD_RECORD_INPUT_PIPE_H_
#define CASTOR_OFFLOAD_RECORD_INPUT_PIPE_H_

// Inputs that may be pipes: a shell's `<(command)` has a writer, and a pipe of
// mkfifo may have none, for which a plain open() waits for ever. Thread-safe.

#include <string>

#include "chunk/base/status.h"

namespace castor {

// `fd` is what open() gave for `path` with O_NONBLOCK, and blocks from now on.
// InvalidArgument where the input is a pipe that nobody opens for writing
// within two seconds.
Status AwaitWriter(int fd, const std::string& path);

}  // namespace castor

#endif  // CASTOR_OFFLOAD_RECORD_INPUT_PIPE_H_
