// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_SUPPORT_CONTRACTS_DEVICE_CONTRACT_H_
#define CASTOR_TESTS_SUPPORT_CONTRACTS_DEVICE_CONTRACT_H_

// What offload/device.h promises, asked of every device alike. A backend
// instantiates the suite:
//
//   INSTANTIATE_TEST_SUITE_P(Simulated, DeviceContract,
//                            testing::Values(SomeBackend(), ...),
//                            DeviceBackendName());
//
// Device memory is written and read back through copies only.

#include <cstddef>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "chunk/base/units.h"
#include "gtest/gtest.h"
#include "offload/device.h"
#include "offload/memory/slab.h"

namespace castor {

inline std::span<std::byte> Contents(const Slab& slab) {
  return {slab.data(), static_cast<size_t>(slab.size().count())};
}

// A device and what it needs to live. At least 16 MiB of its memory are free.
class DeviceUnderTest {
 public:
  virtual ~DeviceUnderTest() = default;
  virtual Device& device() = 0;
  // The device itself fails at its next operation, and at all later ones. False
  // where this backend has no way to do that.
  virtual bool Break() { return false; }
};

struct DeviceBackend {
  std::string name;  // letters and digits
  // Null, with the reason, where this machine has no such device.
  std::function<std::unique_ptr<DeviceUnderTest>(std::string* skip_reason)>
      make;
};

inline std::ostream& operator<<(std::ostream& out,
                                const DeviceBackend& backend) {
  return out << backend.name;
}

struct DeviceBackendName {
  std::string operator()(
      const testing::TestParamInfo<DeviceBackend>& info) const {
    return info.param.name;
  }
};

class DeviceContract : public testing::TestWithParam<DeviceBackend> {
 protected:
  void SetUp() override;

  Device& device() { return under_test_->device(); }
  bool Break() { return under_test_->Break(); }

  // Memory of the device and of its host side. The test fails where there is
  // none.
  Slab OnDevice(Bytes size);
  Slab OnHost(Bytes size);
  // Host memory that holds `bytes`.
  Slab OnHost(std::span<const std::byte> bytes);

  // Device memory from and to plain memory, at once: when nothing queued
  // touches it.
  std::vector<std::byte> Read(const std::byte* from, Bytes size);
  void Write(std::byte* to, std::span<const std::byte> bytes);

 private:
  std::unique_ptr<DeviceUnderTest> under_test_;
};

}  // namespace castor

#endif  // CASTOR_TESTS_SUPPORT_CONTRACTS_DEVICE_CONTRACT_H_
