// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_COLLECTIVES_NCCL_NCCL_LIBRARY_H_
#define CASTOR_COLLECTIVES_NCCL_NCCL_LIBRARY_H_

// Part of the calls of NCCL (nccl_calls.h).
//
// NCCL as it is found at run time. Nothing is linked against it, so one build
// runs with and without it, and a trainer that brings its own NCCL shares it
// with Castor: two copies in one process would each hold threads, sockets and
// device memory. It is sought in this order:
//
//   1. the file that the options or $CASTOR_NCCL_LIBRARY name, and no other
//   2. libnccl.so.2, where the process has loaded it already
//   3. the process itself, where NCCL is linked into the trainer
//   4. libnccl.so.2, where the loader finds it
//   5. $CUDA_HOME/lib64/libnccl.so.2 (CUDA_HOME: /usr/local/cuda unless set)
//
// Once loaded it stays until the process ends: NCCL has threads of its own.
// Thread-compatible as NcclCalls is.

#include <memory>
#include <string>

#include "chunk/base/status.h"
#include "collectives/nccl/nccl_calls.h"
#include "collectives/nccl/nccl_config.h"

namespace castor {

// The dynamic loader, as tests replace it. Thread-safe.
class LibraryLoader {
 public:
  virtual ~LibraryLoader() = default;
  // Null, and in `why` the reason, where there is none. `file` empty: the
  // process itself. `loaded`: only what is loaded already.
  virtual void* Open(const std::string& file, bool loaded,
                     std::string* why) const = 0;
  // Null where it has no such symbol.
  virtual void* Find(void* library, const char* symbol) const = 0;
};

struct NcclLibraryOptions {
  std::string file;                       // empty: sought
  const LibraryLoader* loader = nullptr;  // null: dlopen
};

class NcclLibrary {
 public:
  // Unavailable, saying what was sought where and what to do, where there is
  // no NCCL, an older one than kOldestNccl, or one without a symbol that Castor
  // calls.
  static Result<std::unique_ptr<NcclCalls>> Load(
      const NcclLibraryOptions& options = {});
};

// "2.28.9".
std::string NcclVersionText(int version);

}  // namespace castor

#endif  // CASTOR_COLLECTIVES_NCCL_NCCL_LIBRARY_H_
