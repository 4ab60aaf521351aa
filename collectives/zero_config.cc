// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/zero_config.h"

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/json_fields.h"
#include "chunk/base/strict_json.h"
#include "chunk/base/units.h"
#include "collectives/loss_scaler.h"
#include "collectives/optimizer_groups.h"
#include "offload/kernels/optimizer_options.h"
#include "offload/nvme/nvme_option.h"
#include "placement/plan.h"

namespace castor {
namespace {

constexpr char kSchema[] = "castor.config/1";
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

template <typename T>
using Names = std::vector<std::pair<std::string_view, T>>;

// "optimizer.lr", "nvme[].directory": what a path is called in the table of
// fields. An index is none.
std::string NameOf(const JsonPath& path) {
  std::string name;
  for (const JsonStep& step : path) {
    if (!step.in_object) {
      name += "[]";
    } else {
      if (!name.empty()) name += '.';
      name += step.key;
    }
  }
  return name;
}

class ConfigHandler final : public JsonHandler {
 public:
  explicit ConfigHandler(ZeroOptions base) : options_(std::move(base)) {
    fields_["schema"] = [](const JsonPath&, const JsonScalar& scalar) {
      return CheckSchema(scalar, kSchema);
    };
    AddTraining();
    AddMemory();
    AddOptimizer();
    AddGroups();
    AddLossScale();
  }

  Status Open(const JsonPath& path, JsonContainer container) override {
    const bool object = container == JsonContainer::kObject;
    const std::string name = NameOf(path);
    const auto known = containers_.find(name);
    if (known == containers_.end()) return Unknown(path, object);
    if ((known->second == JsonContainer::kObject) != object) {
      return WrongJsonType(path, object ? "an object" : "an array",
                           object ? "an array" : "an object");
    }
    if (name == "nvme[]") options_.nvme.emplace_back();
    if (name == "groups[]") options_.groups.emplace_back();
    return OkStatus();
  }

  Status Close(const JsonPath& path) override {
    if (NameOf(path) == "nvme[]" && options_.nvme.back().directory.empty()) {
      return MissingKey(path, "directory");
    }
    if (NameOf(path) == "groups[]" && options_.groups.back().name.empty()) {
      return MissingKey(path, "name");
    }
    return OkStatus();
  }

  Status Scalar(const JsonPath& path, const JsonScalar& scalar) override {
    const auto field = fields_.find(NameOf(path));
    if (field != fields_.end()) {
      said_.push_back(field->first);
      return field->second(path, scalar);
    }
    const auto container = containers_.find(NameOf(path));
    if (container == containers_.end()) return Unknown(path, false);
    return WrongJsonType(
        path, JsonScalarText(scalar),
        container->second == JsonContainer::kObject ? "an object" : "an array");
  }

  ZeroOptions Take() { return std::move(options_); }
  const std::vector<std::string>& said() const { return said_; }

 private:
  using Field = std::function<Status(const JsonPath&, const JsonScalar&)>;

  // What is at `path` belongs nowhere, or is a container where a value belongs.
  Status Unknown(const JsonPath& path, bool object) const {
    if (fields_.contains(NameOf(path))) {
      return WrongJsonType(path, object ? "an object" : "an array", "a value");
    }
    if (path.empty() || !path.back().in_object) {
      return WrongJsonType(path, "an array or a value", "an object");
    }
    std::string parent = NameOf({path.begin(), path.end() - 1});
    if (!parent.empty()) parent += '.';
    std::vector<std::string> keys;
    const auto add = [&](const std::string& name) {
      if (!name.starts_with(parent) || name == parent) return;
      const std::string key = name.substr(parent.size());
      if (key.find_first_of(".[") == key.npos) keys.push_back(key);
    };
    for (const auto& [name, field] : fields_) add(name);
    for (const auto& [name, container] : containers_) add(name);
    return CheckKnownKey(path, keys);
  }

  template <typename Set>
  void Whole(const std::string& name, int64_t least, int64_t most, Set set) {
    fields_[name] = [=](const JsonPath& path,
                        const JsonScalar& scalar) -> Status {
      CASTOR_ASSIGN_OR_RETURN(const int64_t value,
                              ReadJsonCount(path, scalar, least, most));
      set(value);
      return OkStatus();
    };
  }

  template <typename Set>
  void Size(const std::string& name, Set set) {
    Whole(name, 0, kMost, [set](int64_t bytes) { set(Bytes(bytes)); });
  }

  template <typename Set>
  void Number(const std::string& name, Set set) {
    fields_[name] = [set](const JsonPath& path, const JsonScalar& scalar) {
      switch (scalar.kind) {
        case JsonKind::kUnsigned:
          set(static_cast<double>(scalar.number));
          return OkStatus();
        case JsonKind::kNegative:
        case JsonKind::kReal:
          set(scalar.real);
          return OkStatus();
        default:
          return WrongJsonType(path, JsonScalarText(scalar), "a number");
      }
    };
  }

  template <typename Set>
  void Flag(const std::string& name, Set set) {
    fields_[name] = [set](const JsonPath& path,
                          const JsonScalar& scalar) -> Status {
      CASTOR_ASSIGN_OR_RETURN(const bool value, ReadJsonBool(path, scalar));
      set(value);
      return OkStatus();
    };
  }

  template <typename Set>
  void Text(const std::string& name, Set set) {
    fields_[name] = [set](const JsonPath& path, const JsonScalar& scalar) {
      if (scalar.kind != JsonKind::kString) {
        return WrongJsonType(path, JsonScalarText(scalar), "a text");
      }
      set(scalar.text);
      return OkStatus();
    };
  }

  template <typename T, typename Set>
  void OneOf(const std::string& name, Names<T> names, Set set) {
    fields_[name] = [=](const JsonPath& path, const JsonScalar& scalar) {
      std::string belongs;
      for (const auto& [text, value] : names) {
        if (scalar.kind == JsonKind::kString && scalar.text == text) {
          set(value);
          return OkStatus();
        }
        belongs += fmt::format("{}\"{}\"", belongs.empty() ? "" : " or ", text);
      }
      return WrongJsonType(path, JsonScalarText(scalar), belongs);
    };
  }

  void AddTraining() {
    Whole("stage", 0, 3,
          [this](int64_t v) { options_.stage = static_cast<int>(v); });
    Whole("shard_group", 0, std::numeric_limits<int>::max(),
          [this](int64_t v) { options_.shard_group = static_cast<int>(v); });
    OneOf(
        "optimizer_span",
        Names<OptimizerSpan>{
            {OptimizerSpanName(OptimizerSpan::kGroup), OptimizerSpan::kGroup},
            {OptimizerSpanName(OptimizerSpan::kWorld), OptimizerSpan::kWorld}},
        [this](OptimizerSpan v) { options_.optimizer_span = v; });
    Number("clip_norm", [this](double v) { options_.clip_norm = v; });
    Whole("prefetch_depth", 0, std::numeric_limits<int>::max(),
          [this](int64_t v) { options_.prefetch_depth = static_cast<int>(v); });
    OneOf("policy",
          Names<PlanPolicy>{
              {PlanPolicyName(PlanPolicy::kAuto), PlanPolicy::kAuto},
              {PlanPolicyName(PlanPolicy::kPlanned), PlanPolicy::kPlanned}},
          [this](PlanPolicy v) { options_.policy = v; });
    OneOf("grad_mode",
          Names<GradMode>{{"separate", GradMode::kSeparate},
                          {"fp32", GradMode::kFp32},
                          {"reuse", GradMode::kReuse}},
          [this](GradMode v) { options_.grad_mode = v; });
    OneOf("accumulation_order",
          Names<AccumulationOrder>{{"each", AccumulationOrder::kEach},
                                   {"last", AccumulationOrder::kLast}},
          [this](AccumulationOrder v) { options_.accumulation = v; });
  }

  void AddMemory() {
    Size("device_budget_bytes",
         [this](Bytes v) { options_.device_budget = v; });
    Size("host_budget_bytes", [this](Bytes v) { options_.host_budget = v; });
    Text("nvme[].directory",
         [this](std::string_view v) { options_.nvme.back().directory = v; });
    Size("nvme[].size_bytes",
         [this](Bytes v) { options_.nvme.back().size = v; });
    Size("chunk.bytes", [this](Bytes v) { options_.chunk_size = v; });
    Size("chunk.min_bytes", [this](Bytes v) { options_.min_chunk = v; });
    Size("chunk.max_bytes", [this](Bytes v) { options_.max_chunk = v; });
    Whole("chunk.align_elements", 1, kMost,
          [this](int64_t v) { options_.align = Elements(v); });
  }

  void AddOptimizer() {
    const auto real = [this](const char* key,
                             double OptimizerOptions::*member) {
      Number(std::string("optimizer.").append(key),
             [this, member](double v) { options_.optimizer.*member = v; });
    };
    const auto flag = [this](const char* key, bool OptimizerOptions::*member) {
      Flag(std::string("optimizer.").append(key),
           [this, member](bool v) { options_.optimizer.*member = v; });
    };
    Names<OptimizerKind> kinds;
    for (const OptimizerKind kind :
         {OptimizerKind::kAdam, OptimizerKind::kAdamW, OptimizerKind::kSgd,
          OptimizerKind::kLion}) {
      kinds.emplace_back(OptimizerName(kind), kind);
    }
    OneOf("optimizer.kind", kinds, [this](OptimizerKind v) {
      options_.optimizer = DefaultOptimizerOptions(v);
    });
    real("beta1", &OptimizerOptions::beta1);
    real("beta2", &OptimizerOptions::beta2);
    real("eps", &OptimizerOptions::eps);
    real("weight_decay", &OptimizerOptions::weight_decay);
    real("momentum", &OptimizerOptions::momentum);
    real("dampening", &OptimizerOptions::dampening);
    flag("nesterov", &OptimizerOptions::nesterov);
    flag("stochastic_rounding", &OptimizerOptions::stochastic_rounding);
    OneOf("optimizer.moment_dtype",
          Names<DType>{{DTypeName(DType::kF32), DType::kF32},
                       {DTypeName(DType::kBF16), DType::kBF16}},
          [this](DType v) { options_.optimizer.moment_dtype = v; });
    Whole("optimizer.seed", 0, kMost, [this](int64_t v) {
      options_.optimizer.seed = static_cast<uint64_t>(v);
    });
  }

  void AddGroups() {
    Text("groups[].name",
         [this](std::string_view v) { options_.groups.back().name = v; });
    Number("groups[].lr_scale",
           [this](double v) { options_.groups.back().lr_scale = v; });
    const auto real = [this](const char* key,
                             std::optional<double> OptimizerGroup::*member) {
      Number(std::string("groups[].").append(key),
             [this, member](double v) { options_.groups.back().*member = v; });
    };
    real("beta1", &OptimizerGroup::beta1);
    real("beta2", &OptimizerGroup::beta2);
    real("eps", &OptimizerGroup::eps);
    real("weight_decay", &OptimizerGroup::weight_decay);
  }

  void AddLossScale() {
    OneOf("loss_scale.kind",
          Names<LossScalingKind>{{"none", LossScalingKind::kNone},
                                 {"static", LossScalingKind::kStatic},
                                 {"dynamic", LossScalingKind::kDynamic}},
          [this](LossScalingKind v) { options_.loss_scaling.kind = v; });
    const auto real = [this](const char* key, double LossScaling::*member) {
      Number(std::string("loss_scale.").append(key),
             [this, member](double v) { options_.loss_scaling.*member = v; });
    };
    real("initial", &LossScaling::initial);
    real("growth", &LossScaling::growth);
    real("backoff", &LossScaling::backoff);
    real("least", &LossScaling::least);
    real("most", &LossScaling::most);
    Whole("loss_scale.growth_interval", 1, kMost,
          [this](int64_t v) { options_.loss_scaling.growth_interval = v; });
    Whole("loss_scale.hysteresis", 1, std::numeric_limits<int32_t>::max(),
          [this](int64_t v) {
            options_.loss_scaling.hysteresis = static_cast<int32_t>(v);
          });
  }

  ZeroOptions options_;
  std::vector<std::string> said_;
  std::map<std::string, Field> fields_;
  // By the name of what opens.
  const std::map<std::string, JsonContainer> containers_ = {
      {"", JsonContainer::kObject},
      {"nvme", JsonContainer::kArray},
      {"nvme[]", JsonContainer::kObject},
      {"chunk", JsonContainer::kObject},
      {"optimizer", JsonContainer::kObject},
      {"groups", JsonContainer::kArray},
      {"groups[]", JsonContainer::kObject},
      {"loss_scale", JsonContainer::kObject}};
};

}  // namespace

Result<ZeroOptions> ParseZeroConfig(std::string_view text) {
  std::vector<std::string> said;
  return ParseZeroConfig(text, {}, &said);
}

Result<ZeroOptions> ParseZeroConfig(std::string_view text, ZeroOptions base,
                                    std::vector<std::string>* said) {
  ConfigHandler handler(std::move(base));
  if (const Status read = ReadStrictJsonByLine(text, handler); !read.ok()) {
    // Of the caller's own, as a flag is.
    return InvalidArgument(std::string(read.message()));
  }
  said->insert(said->end(), handler.said().begin(), handler.said().end());
  return handler.Take();
}

}  // namespace castor
