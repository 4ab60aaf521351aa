// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_EXAMPLES_GPT_ACTIVATION_H_
#define CASTOR_TOOLS_EXAMPLES_GPT_ACTIVATION_H_

// The functions of one element that cost a model most after its products: GELU
// and the exponential, on whatever vectors the machine has (Highway), with the
// same bits on all of them: separate multiplies and adds, and nothing summed
// over elements. For float and double. Pure functions, thread-safe.

#include <cstdint>

namespace castor::gpt {

// y = GELU(x), the tanh form: with u = sqrt(2/pi) (x + 0.044715 x^3),
// 0.5 x (1 + tanh u) = x / (1 + exp(-2u)).
void Gelu(const float* x, int64_t count, float* y);
void Gelu(const double* x, int64_t count, double* y);

// The same, for the way back: `x` becomes GELU's slope there.
void GeluAndSlope(float* x, int64_t count, float* y);
void GeluAndSlope(double* x, int64_t count, double* y);

// x = exp(x - shift), within two units in the last place. Differences are
// clamped to where the result is a normal number.
void ExpMinus(float* x, int64_t count, float shift);
void ExpMinus(double* x, int64_t count, double shift);

}  // namespace castor::gpt

#endif  // CASTOR_TOOLS_EXAMPLES_GPT_ACTIVATION_H_
