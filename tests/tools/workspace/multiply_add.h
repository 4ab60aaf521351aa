// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TESTS_TOOLS_WORKSPACE_MULTIPLY_ADD_H_
#define CASTOR_TESTS_TOOLS_WORKSPACE_MULTIPLY_ADD_H_

// A kernel whose result tells whether the compiler fused its multiply-add.
// Thread-safe.

namespace castor {

// Stores a * b + c, each operation rounded, in *result on the current device
// and waits for it. Returns the runtime's cudaError_t.
int MultiplyAddOnDevice(float a, float b, float c, float* result);

}  // namespace castor

#endif  // CASTOR_TESTS_TOOLS_WORKSPACE_MULTIPLY_ADD_H_
