// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_TOOLS_MODELS_FAKE_PYTHON_H_
#define CASTOR_TESTS_TOOLS_MODELS_FAKE_PYTHON_H_

// A Python of a few lines of shell, which answers what a test wants to see.

#include <filesystem>
#include <string>

#include "tests/tools/models/model_files.h"

namespace castor {

// Its path, in `folder`; `lines` are what it does.
inline std::string FakePython(const TempFolder& folder,
                              const std::string& lines) {
  const std::string path =
      folder.Write("it's a/python", "#!/bin/sh\n" + lines + "\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

}  // namespace castor

#endif  // CASTOR_TESTS_TOOLS_MODELS_FAKE_PYTHON_H_
