// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/lanes/start_thread.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>

#include "offload/host/cgroup_folders.h"

namespace castor {
namespace {

template <typename Resource>
std::string LimitText(Resource resource, rlim_t unit, const char* unit_name) {
  rlimit limit;
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return "no limit";
  }
  return fmt::format("{}{}", limit.rlim_cur / unit, unit_name);
}

// The least of the groups that this process is in.
std::string PidsText() {
  std::string text = "no limit";
  long long least = -1;
  for (const internal::CgroupFolder& folder :
       internal::CgroupFolders({}, "pids")) {
    const auto most = internal::ReadFirstLine(folder.path + "/pids.max");
    if (!most || *most == "max") continue;
    const long long number = std::atoll(most->c_str());
    if (least >= 0 && number >= least) continue;
    least = number;
    const auto now = internal::ReadFirstLine(folder.path + "/pids.current");
    text = fmt::format("{}, of which {} are used", *most, now.value_or("?"));
  }
  return text;
}

}  // namespace

std::thread StartThread(std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw ThreadLimit(fmt::format(
        "the system starts no more threads ({}). Its limits are: threads of "
        "this user (ulimit -u): {}; of this container (pids.max): {}; stack of "
        "each (ulimit -s): {}; addresses (ulimit -v): {}. Raise the one that "
        "is reached",
        error.code().message(), LimitText(RLIMIT_NPROC, 1, ""), PidsText(),
        LimitText(RLIMIT_STACK, 1024, " KiB"),
        LimitText(RLIMIT_AS, 1024, " KiB")));
  }
}

}  // namespace castor
