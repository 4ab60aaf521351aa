// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_FILES_HUB_CACHE_H_
#define CASTOR_TOOLS_MODELS_FILES_HUB_CACHE_H_

// Part of the folders of models (model_folder.h). Models that Hugging Face's
// libraries have downloaded to this machine. Only looked up, never fetched:
// nothing here uses the network. The cache holds
//
//   models--ORG--NAME/refs/main            the revision that "main" meant
//   models--ORG--NAME/snapshots/REVISION/  its files, links into
//   models--ORG--NAME/blobs/
//
// Reads directories and the environment; thread-safe.

#include <optional>
#include <string>
#include <string_view>

#include "chunk/base/status.h"

namespace castor {

// ORG/NAME or NAME, and REV of ORG/NAME@REV.
struct HubName {
  std::string org;  // empty for the few models without one
  std::string name;
  std::string revision;  // a commit or ref; empty for "main"
};

// Empty where `text` cannot be the name of a model: it has other characters
// than letters, digits, "-", "_" and ".", or more than one slash before "@".
std::optional<HubName> ParseHubName(std::string_view text);

// Where downloads are kept: $HF_HUB_CACHE, else $HF_HOME/hub, else the folder
// huggingface/hub in $XDG_CACHE_HOME or ~/.cache. Empty without any of them.
std::string HubCacheFolder();

// The snapshot's folder. InvalidArgument where the model, or the revision, is
// not in `cache`, or where several revisions are and none is "main"; the
// message says where it was looked for, what is there and what to do. Malformed
// where the cache is damaged.
Result<std::string> FindInHubCache(const HubName& name,
                                   const std::string& cache);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_FILES_HUB_CACHE_H_
