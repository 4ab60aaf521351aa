// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/examples/gpt/model/gemm.h"

#include <cblas.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "chunk/base/check.h"

namespace castor::gpt {
namespace {

constexpr int kMostCallers = 64;  // OpenBLAS has buffers for twice as many
// A caller's buffer, in the largest of OpenBLAS' builds, and room beside it.
constexpr size_t kBuffer = size_t{256} << 20;

// Of all that is mapped, or of what may be written.
bool AddressesAreLimited() {
  rlimit limit;
  return (getrlimit(RLIMIT_AS, &limit) == 0 &&
          limit.rlim_cur != RLIM_INFINITY) ||
         (getrlimit(RLIMIT_DATA, &limit) == 0 &&
          limit.rlim_cur != RLIM_INFINITY);
}

// A caller more than there are cores gains nothing and takes a buffer. Where
// addresses are few, there is one buffer, which LoadBlas has taken.
int Callers() {
  if (AddressesAreLimited()) return 1;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1,
                    kMostCallers);
}

// Opened by hand, since OpenBLAS starts threads when it is loaded, and ends the
// process where it gets none.
class Blas {
 public:
  static Blas& Instance() {
    static Blas& blas = *new Blas();
    return blas;
  }

  const Status& status() const { return status_; }
  decltype(&cblas_sgemm) Enter() {
    CASTOR_CHECK(status_.ok());
    callers_.acquire();
    return sgemm_;
  }
  void Leave() { callers_.release(); }

 private:
  Blas() : callers_(Callers()), status_(Open()) {}

  Status Open() {
    if (AddressesAreLimited()) {
      void* const room = mmap(nullptr, kBuffer, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (room == MAP_FAILED) {
        return Unavailable(fmt::format(
            "OpenBLAS takes up to {} MiB of addresses, and the limit leaves "
            "fewer: raise it (ulimit -v, ulimit -d)",
            kBuffer >> 20));
      }
      munmap(room, kBuffer);
    }
    // It gives the same bits for the same inputs only while its number of
    // threads is the same; ranks are threads of our own.
    setenv("OPENBLAS_NUM_THREADS", "1", /*overwrite=*/1);
    void* const library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* const why = dlerror();
      return Unavailable(
          fmt::format("OpenBLAS cannot be loaded: {}; install libopenblas0",
                      why == nullptr ? "no reason given" : why));
    }
    sgemm_ = reinterpret_cast<decltype(sgemm_)>(dlsym(library, "cblas_sgemm"));
    if (sgemm_ == nullptr) {
      return Unavailable("OpenBLAS has no cblas_sgemm: install libopenblas0");
    }
    return OkStatus();
  }

  std::counting_semaphore<kMostCallers> callers_;
  decltype(&cblas_sgemm) sgemm_ = nullptr;
  Status status_;  // last: opening sets the rest
};

}  // namespace

Status LoadBlas() {
  Blas& blas = Blas::Instance();
  CASTOR_RETURN_IF_ERROR(blas.status());
  if (AddressesAreLimited()) {
    // Large enough to take the buffer, which stays.
    constexpr int kSide = 256;
    const std::vector<float> factor(size_t{kSide} * kSide, 1);
    std::vector<float> product(factor.size());
    Multiply({kSide, kSide, kSide}, {factor.data(), kSide},
             {factor.data(), kSide}, Into::kOverwrite, product.data(), kSide);
  }
  return OkStatus();
}

void Multiply(const ProductShape& shape, const Factor& left,
              const Factor& right, Into into, float* to, int64_t stride,
              float scale) {
  const auto order = [](const Factor& f) {
    return f.transposed ? CblasTrans : CblasNoTrans;
  };
  const auto narrow = [](int64_t n) { return static_cast<blasint>(n); };
  Blas& blas = Blas::Instance();
  blas.Enter()(CblasRowMajor, order(left), order(right), narrow(shape.rows),
               narrow(shape.columns), narrow(shape.inner), scale, left.data,
               narrow(left.stride), right.data, narrow(right.stride),
               into == Into::kAdd ? 1.0f : 0.0f, to, narrow(stride));
  blas.Leave();
}

}  // namespace castor::gpt
