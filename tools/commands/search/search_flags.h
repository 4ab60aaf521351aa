// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_FLAGS_H_
#define CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_FLAGS_H_

// The flags of `castor search`, as they are declared and written. What they ask
// for is in search_request.h. Owner thread only.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/units.h"

namespace CLI {
class App;
}  // namespace CLI

namespace castor {

// As they were written; what is empty was not given.
struct SearchFlags {
  std::string model;
  std::optional<Bytes> min;
  std::optional<Bytes> max;
  int64_t world = 1;
  int64_t align = 64;
  std::string dtype;
  std::string mode;
  int64_t prefetch_depth = 1;
  std::optional<Bytes> device_budget;
  std::string order;
  std::string trace;
  std::string expert_layout;
  std::vector<std::string> freeze;
  std::vector<std::string> only;
  std::optional<Bytes> chunk;
  std::string pick;
  bool explain = false;
  std::string output;
  std::string rule;
  std::string machine;
  std::string h2d;
  std::string d2h;
  std::string all_gather;
  std::string reduce_scatter;
  bool zoo = false;
  bool json = false;
  bool plain = false;
};

// `flags` outlives `app`.
void DeclareSearchFlags(CLI::App& app, SearchFlags* flags);

}  // namespace castor

#endif  // CASTOR_TOOLS_COMMANDS_SEARCH_SEARCH_FLAGS_H_
