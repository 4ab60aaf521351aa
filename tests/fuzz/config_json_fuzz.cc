// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "chunk/param_spec.h"
#include "tools/models/families/config_values.h"
#include "tools/models/families/family_model.h"

namespace castor {
namespace {

Status ParseAndBuild(std::string_view json) {
  CASTOR_ASSIGN_OR_RETURN(const ConfigValues config, ConfigValues::Parse(json));
  CASTOR_ASSIGN_OR_RETURN(const std::string model_type, config.model_type());
  if (!IsKnownFamily(model_type)) return OkStatus();
  CASTOR_ASSIGN_OR_RETURN(const FamilyModel model, BuildFamilyModel(config));
  CASTOR_CHECK(!model.params.empty());
  for (const ParamSpec& spec : model.params) {
    CASTOR_CHECK(!spec.name.empty());
    CASTOR_CHECK(CountElements(spec.shape, spec.dtype).ok());
  }
  return OkStatus();
}

}  // namespace
}  // namespace castor

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const castor::Status status = castor::ParseAndBuild(
      std::string_view(reinterpret_cast<const char*>(data), size));
  if (!status.ok()) {
    const int code = castor::ExitCode(status.code());
    CASTOR_CHECK(code == 4 || code == 2);
    CASTOR_CHECK(!status.message().empty());
  }
  return 0;
}
