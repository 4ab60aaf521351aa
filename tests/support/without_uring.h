// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_WITHOUT_URING_H_
#define CASTOR_TESTS_SUPPORT_WITHOUT_URING_H_

// Runs part of a test as on a machine that refuses what io_uring needs, on a
// thread of its own, whose children inherit that.

#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <thread>

namespace castor {

// The kernel answers every io_uring_setup with `error`, as a container's
// profile does. False where it allows no such filter.
inline bool WithoutUring(int error, const std::function<void()>& body) {
  bool filtered = false;
  std::thread([&] {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K,
                 SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog filter = {.len = std::size(program), .filter = program};
    filtered = ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
               ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
    if (filtered) body();
  }).join();
  return filtered;
}

// The user may lock `bytes` of memory and no more, and has no privilege to lock
// all the same. The limit is the whole process's while `body` runs. False where
// it cannot be set.
inline bool WithMemlockLimit(uint64_t bytes,
                             const std::function<void()>& body) {
  bool limited = false;
  std::thread([&] {
    rlimit before;
    if (::getrlimit(RLIMIT_MEMLOCK, &before) != 0) return;
    rlimit low = before;
    low.rlim_cur = bytes;
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2];
    if (::syscall(SYS_capget, &header, data) != 0) return;
    data[0].effective &= ~(1u << CAP_IPC_LOCK);
    if (::syscall(SYS_capset, &header, data) != 0) return;
    if (::setrlimit(RLIMIT_MEMLOCK, &low) != 0) return;
    limited = true;
    body();
    limited = ::setrlimit(RLIMIT_MEMLOCK, &before) == 0;
  }).join();
  return limited;
}

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_WITHOUT_URING_H_
