// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/commands/search/certificate_json.h"

#include <gtest/gtest.h>

#include "chunk/base/json_value.h"
#include "chunk/layer_certificate.h"
#include "chunk/search_certificate.h"
#include "chunk/search_mode.h"
#include "chunk/search_result.h"

namespace castor {
namespace {

TEST(CertificateJsonTest, WritesTheIntervalsOfUniform) {
  ModeResult mode;
  mode.mode = SearchMode::kUniform;
  mode.lower_bound_waste = Elements(7);
  mode.optimal = true;
  SearchCertificate certificate;
  certificate.intervals = {{Elements(128), Elements(256), 3, Elements(640)}};
  mode.certificate = certificate;
  EXPECT_EQ(CertificateJson(mode, "").Dump(),
            R"({"mode":"uniform","lower_bound_waste_elements":7,)"
            R"("optimal":true,"intervals":[{"from_elements":128,)"
            R"("to_elements":256,"chunks":3,"oversize_elements":640}]})");
}

TEST(CertificateJsonTest, WritesRepeatAndStepsOfLayer) {
  ModeResult mode;
  mode.mode = SearchMode::kLayer;
  mode.lower_bound_waste = Elements(7);
  mode.optimal = true;
  LayerCertificate certificate;
  certificate.repeat = {.first = 1, .params = 9, .repeats = 32};
  certificate.steps = {{2, Elements(256), Elements(7)}};
  mode.certificate = certificate;
  EXPECT_EQ(CertificateJson(mode, "F32 frozen").Dump(),
            R"({"mode":"layer","group":"F32 frozen",)"
            R"("lower_bound_waste_elements":7,"optimal":true,)"
            R"("repeat":{"first":1,"params":9,"repeats":32},)"
            R"("steps":[{"chunks_per_repeat":2,"chunk_elements":256,)"
            R"("waste_elements":7}]})");
}

TEST(CertificateJsonTest, ProvesNothingOfNothing) {
  EXPECT_EQ(EmptyCertificateJson()["optimal"], true);
  EXPECT_TRUE(EmptyCertificateJson()["intervals"].empty());
}

}  // namespace
}  // namespace castor
