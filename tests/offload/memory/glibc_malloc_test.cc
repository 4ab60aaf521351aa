// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// A program that holds jemalloc, and uses it, still gets its memory from the C
// library.

#include <dlfcn.h>
#include <malloc.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "offload/memory/jemalloc_arena.h"
#include "offload/memory/linked_jemalloc.h"
#include "offload/memory/pinned_arena.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CASTOR_SANITIZER_IS_MALLOC
#endif
#endif

class GlibcMallocTest : public testing::Test {
 protected:
  void SetUp() override {
#ifdef CASTOR_SANITIZER_IS_MALLOC
    GTEST_SKIP() << "the sanitizer serves malloc here";
#endif
    ASSERT_OK_AND_ASSIGN(
        auto arena, MakeJemallocArena(LinkedJemalloc(), {.budget = MiB(1)}));
    arena_ = std::move(arena);
    ASSERT_OK_AND_ASSIGN(auto buffer, arena_->Allocate(Bytes(100)));
    buffer_ = std::move(buffer);
  }

  std::unique_ptr<PinnedArena> arena_;
  PinnedBuffer buffer_;
};

// The file that a function's code is in.
template <typename Function>
std::string FileOf(Function* function) {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(function), &info) == 0) return "";
  return info.dli_fname;
}

TEST_F(GlibcMallocTest, TheCLibraryServesMalloc) {
  void* const c_library = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(c_library, nullptr);
  for (const char* name :
       {"malloc", "free", "calloc", "realloc", "memalign", "posix_memalign",
        "aligned_alloc", "malloc_usable_size"}) {
    void* const found = dlsym(RTLD_DEFAULT, name);
    EXPECT_EQ(found, dlsym(c_library, name)) << name;
    EXPECT_NE(FileOf(static_cast<char*>(found)).find("libc.so"),
              std::string::npos)
        << name;
  }
  dlclose(c_library);
}

TEST_F(GlibcMallocTest, TheCLibraryCountsWhatMallocAndNewGive) {
  const auto in_use = [] {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const size_t before = in_use();
  void* const small = std::malloc(1000);
  void* const large = std::malloc(10 << 20);
  void* const made = ::operator new(100'000);
  // What is not looked at, a compiler may leave out.
  for (void* volatile each : {small, large, made}) ASSERT_NE(each, nullptr);
  EXPECT_GE(in_use(), before + 1000 + (10 << 20) + 100'000);
  ::operator delete(made);
  std::free(large);
  std::free(small);
  EXPECT_LT(in_use(), before + 100'000);
}

}  // namespace
}  // namespace castor
