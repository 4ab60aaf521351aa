// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_TOOLS_EXAMPLES_TRAIN_GPT_RUNS_H_
#define CASTOR_TESTS_TOOLS_EXAMPLES_TRAIN_GPT_RUNS_H_

// What tests look at of the example trainer's runs.

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>

namespace castor {

inline void WriteTrainingText(const std::string& path) {
  std::ofstream text(path);
  for (int i = 0; i < 200; ++i) text << "line " << i * i << " of the text\n";
}

// Of the weights, as the summary has it.
inline std::string DigestIn(const std::string& out) {
  const std::string label = "weight digest: ";
  const size_t at = out.find(label);
  return at == std::string::npos ? "no digest" : out.substr(at + 15, 16);
}

// What is being saved to the folder `save`, or was when its run was killed: the
// name and when it was last changed.
inline std::string DraftIn(const std::string& save) {
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(save, ignored), end;
       !ignored && entry != end; entry.increment(ignored)) {
    const std::string path = entry->path().string();
    struct stat info = {};
    if (entry->path().filename().string().starts_with(".saving-") &&
        stat(path.c_str(), &info) == 0) {
      return fmt::format("{} {}.{}", path, info.st_ctim.tv_sec,
                         info.st_ctim.tv_nsec);
    }
  }
  return "";
}

// Whether the process ends within some seconds.
inline bool ProcessEnds(pid_t pid) {
  for (int i = 0; i < 1500; ++i) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name, state;
    // A zombie has ended.
    if (!(file >> number >> name >> state) || state == "Z") return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace castor

#endif  // CASTOR_TESTS_TOOLS_EXAMPLES_TRAIN_GPT_RUNS_H_
