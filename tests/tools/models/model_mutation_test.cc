// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Random damage to valid files of every format. Whatever the bytes, the reader
// ends in a list whose numbers hold together or in a Status that says what is
// wrong; sanitizers and CHECKs see to the rest.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/param_spec.h"
#include "tests/support/byte_mutator.h"
#include "tests/support/test_rounds.h"
#include "tests/tools/models/model_files.h"
#include "tools/models/families/config_values.h"
#include "tools/models/families/family_model.h"
#include "tools/models/files/param_list.h"
#include "tools/models/files/safetensors_index.h"
#include "tools/models/model_list.h"
#include "tools/models/model_reader.h"

namespace castor {
namespace {

constexpr int kFileRounds = 250;
// Where there are ten files, each of whose texts is damaged in memory too.
constexpr int kFamilyFileRounds = 50;
constexpr int kMemoryRounds = 5000;
constexpr int kFamilyMemoryRounds = 2000;

uint64_t Seed() {
  const char* given = std::getenv("CASTOR_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10)
                          : std::random_device{}();
}

// Either a list that holds together or exit code 4; 2 where the damage made the
// file another model's (an unknown family), which is the user's to choose.
void ExpectSane(const std::string& path, const ReadModelOptions& options,
                const std::string& bytes) {
  const Result<ModelList> model = ReadModel(path, options);
  if (!model.ok()) {
    EXPECT_TRUE(ExitCode(model.status().code()) == 4 ||
                ExitCode(model.status().code()) == 2)
        << model.status() << "\n"
        << bytes;
    EXPECT_FALSE(model.status().message().empty());
    EXPECT_LT(model.status().message().size(), 4000u);
    return;
  }
  int64_t sum = 0;
  for (const ParamSpec& spec : model->params) {
    const auto count = CountElements(spec.shape, spec.dtype);
    ASSERT_TRUE(count.ok()) << count.status();
    sum += count->count();
  }
  EXPECT_LE(sum, kMaxModelElements);
  EXPECT_LE(model->params.size(), 2'000'000u);
}

ReadModelOptions RandomOptions(ByteMutator& mutator) {
  ReadModelOptions options;
  switch (mutator.Below(7)) {
    case 0:
      options.order = ParamOrder::kFile;
      break;
    case 1:
      options.dtype = DType::kF4;
      break;
    case 2:
      options.expert_layout = ExpertLayout::kFused;
      break;
    case 3:
      options.expert_layout = ExpertLayout::kPerExpert;
      break;
    case 4:
      options.freeze = {"*w*"};
      break;
    default:
      break;
  }
  return options;
}

const std::vector<ParamSpec> kModel = {
    {"wte.weight", {10, 8}, DType::kBF16},
    {"h.0.attn.bias", {1, 1, 4, 4}, DType::kU8},
    {"m.experts.gate_up_proj", {2, 6, 4}, DType::kF32},
    {"m.experts.down_proj", {2, 4, 3}, DType::kF32},
    {"scale", {}, DType::kF64},
    {"none", {0, 7}, DType::kF8E5M2},
    {"half", {2}, DType::kF4}};

constexpr char kConfig[] =
    R"({"model_type":"gpt2","n_embd":8,"n_layer":2,"n_head":2,"n_positions":4,
        "vocab_size":10,"dtype":"bfloat16","n_inner":null,
        "architectures":["GPT2LMHeadModel"],"x":{"y":[1,2.5,{"z":"w"}]}})";

// The whole path: file written, read, judged.
void MutateFile(const std::string& name, const std::string& valid,
                int rounds = kFileRounds) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(testing::Message() << "CASTOR_SEED=" << seed);
  ByteMutator mutator(seed, ParserTokens());
  const TempFolder folder;
  const Result<ModelList> whole = ReadModel(folder.Write(name, valid), {});
  ASSERT_TRUE(whole.ok()) << whole.status();
  for (int i = 0; i < TestRounds(rounds); ++i) {
    const std::string bytes = mutator.Mutate(valid);
    ExpectSane(folder.Write(name, bytes), RandomOptions(mutator), bytes);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(ModelMutationTest, SafetensorsBytes) {
  uint64_t data_bytes = 0;
  const std::string json = SafetensorsJson(kModel, &data_bytes);
  MutateFile("a.safetensors", SafetensorsFile(json, data_bytes));
}

// The length stays true, so that the damage reaches the JSON.
TEST(ModelMutationTest, SafetensorsHeader) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(testing::Message() << "CASTOR_SEED=" << seed);
  ByteMutator mutator(seed, ParserTokens());
  const TempFolder folder;
  uint64_t data_bytes = 0;
  const std::string json = SafetensorsJson(kModel, &data_bytes);
  for (int i = 0; i < TestRounds(kFileRounds); ++i) {
    const std::string bytes = mutator.Mutate(json);
    ExpectSane(
        folder.Write("a.safetensors", SafetensorsFile(bytes, data_bytes)),
        RandomOptions(mutator), bytes);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(ModelMutationTest, Index) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(testing::Message() << "CASTOR_SEED=" << seed);
  ByteMutator mutator(seed, ParserTokens());
  const TempFolder folder;
  WriteSafetensors(folder, "m-1.safetensors", {kModel[0], kModel[1]});
  WriteSafetensors(folder, "m-2.safetensors", {kModel[4]});
  const std::string valid =
      R"({"metadata":{"total_size":184},"weight_map":{)"
      R"("wte.weight":"m-1.safetensors","h.0.attn.bias":"m-1.safetensors",)"
      R"("scale":"m-2.safetensors"}})";
  const std::string name = "m.safetensors.index.json";
  const Result<ModelList> whole = ReadModel(folder.Write(name, valid), {});
  ASSERT_TRUE(whole.ok()) << whole.status();
  for (int i = 0; i < TestRounds(kFileRounds); ++i) {
    const std::string bytes = mutator.Mutate(valid);
    ExpectSane(folder.Write(name, bytes), RandomOptions(mutator), bytes);
    if (testing::Test::HasFailure()) return;
  }
}

// Without the cost of files, each parser by itself.
void MutateText(const std::string& valid,
                const std::function<Status(const std::string&)>& parse,
                int rounds = kMemoryRounds) {
  const uint64_t seed = Seed();
  SCOPED_TRACE(testing::Message() << "CASTOR_SEED=" << seed);
  ByteMutator mutator(seed, ParserTokens());
  const Status whole = parse(valid);
  ASSERT_TRUE(whole.ok()) << whole;
  for (int i = 0; i < TestRounds(rounds); ++i) {
    const std::string bytes = mutator.Mutate(valid);
    const Status status = parse(bytes);
    ASSERT_TRUE(status.ok() || status.code() == ErrorCode::kMalformed)
        << status << "\n"
        << bytes;
  }
}

TEST(ModelMutationTest, SafetensorsHeaderText) {
  uint64_t data_bytes = 0;
  const std::string json = SafetensorsJson(kModel, &data_bytes);
  MutateText(json, [&](const std::string& text) {
    return ParseSafetensorsHeader(text, data_bytes).status();
  });
}

TEST(ModelMutationTest, IndexText) {
  MutateText(R"({"metadata":{"total_size":184},"weight_map":{"a":)"
             R"("m-1.safetensors","b":"m-2.safetensors"}})",
             [](const std::string& text) {
               return ParseSafetensorsIndex(text).status();
             });
}

TEST(ModelMutationTest, ListText) {
  MutateText(
      "wte\t10,8\tBF16\nscale\t\tF64\nhalf\t2\tF4\n\tstep\tseparate\n"
      "\thold\twte\n\thold\n\tgrads\twte\tscale\n",
      [](const std::string& text) { return ParseTsvList(text).status(); });
  MutateText(
      R"([{"name":"a","shape":[10,8],"dtype":"BF16"},)"
      R"({"name":"b","shape":[],"dtype":"float64"}])",
      [](const std::string& text) { return ParseJsonList(text).status(); });
}

TEST(ModelMutationTest, Config) { MutateFile("config.json", kConfig); }

// A small model of each family, with every key that its builder reads.
const std::vector<std::string> kFamilyConfigs = {
    R"({"model_type":"llama","hidden_size":8,"intermediate_size":12,
        "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
        "head_dim":2,"vocab_size":10,"attention_bias":true,"mlp_bias":false,
        "tie_word_embeddings":true,"architectures":["LlamaModel"]})",
    R"({"model_type":"gemma2","hidden_size":8,"intermediate_size":12,
        "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
        "head_dim":2,"vocab_size":10,"attention_bias":true})",
    R"({"model_type":"qwen2_moe","hidden_size":8,"intermediate_size":12,
        "num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":2,
        "vocab_size":10,"num_experts":3,"moe_intermediate_size":6,
        "shared_expert_intermediate_size":4,"decoder_sparse_step":2,
        "mlp_only_layers":[0,2],"qkv_bias":false})",
    R"({"model_type":"mixtral","hidden_size":8,"intermediate_size":12,
        "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
        "vocab_size":10,"num_local_experts":3})",
    R"({"model_type":"deepseek_v3","hidden_size":8,"intermediate_size":12,
        "num_hidden_layers":3,"num_attention_heads":4,"vocab_size":10,
        "n_routed_experts":3,"n_shared_experts":1,"moe_intermediate_size":6,
        "first_k_dense_replace":1,"q_lora_rank":null,"kv_lora_rank":5,
        "qk_nope_head_dim":4,"qk_rope_head_dim":2,"v_head_dim":3,
        "num_nextn_predict_layers":1})",
    R"({"model_type":"gpt_neox","hidden_size":8,"intermediate_size":12,
        "num_hidden_layers":2,"num_attention_heads":4,"vocab_size":10,
        "attention_bias":false,"tie_word_embeddings":false})",
    R"({"model_type":"opt","hidden_size":8,"ffn_dim":12,"num_hidden_layers":2,
        "num_attention_heads":4,"vocab_size":10,"max_position_embeddings":4,
        "word_embed_proj_dim":4,"do_layer_norm_before":false,
        "enable_bias":true,"layer_norm_elementwise_affine":true,
        "_remove_final_layer_norm":false})",
    R"({"model_type":"falcon","hidden_size":8,"num_hidden_layers":2,
        "num_attention_heads":4,"num_kv_heads":2,"vocab_size":10,
        "new_decoder_architecture":true,"multi_query":false,"bias":true,
        "parallel_attn":true,"num_ln_in_parallel_attn":null,"alibi":false,
        "ffn_hidden_size":12,"n_embed":null})",
    R"({"model_type":"bert","hidden_size":8,"intermediate_size":12,
        "num_hidden_layers":2,"num_attention_heads":4,"vocab_size":10,
        "max_position_embeddings":4,"type_vocab_size":2,
        "architectures":["BertForMaskedLM"],"add_cross_attention":false})",
    R"({"model_type":"t5","d_model":8,"d_ff":12,"d_kv":2,"num_heads":2,
        "num_layers":2,"num_decoder_layers":null,"vocab_size":10,
        "relative_attention_num_buckets":4,"feed_forward_proj":"gated-gelu",
        "tie_word_embeddings":false})"};

TEST(ModelMutationTest, ConfigText) {
  std::vector<std::string> configs = kFamilyConfigs;
  configs.push_back(kConfig);
  for (const std::string& valid : configs) {
    MutateText(
        valid,
        [](const std::string& text) -> Status {
          CASTOR_ASSIGN_OR_RETURN(const ConfigValues config,
                                  ConfigValues::Parse(text));
          CASTOR_ASSIGN_OR_RETURN(const std::string family,
                                  config.model_type());
          if (!IsKnownFamily(family)) return OkStatus();
          return BuildFamilyModel(config, ExpertLayout::kPerExpert).status();
        },
        kFamilyMemoryRounds);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(ModelMutationTest, FamilyConfigs) {
  for (const std::string& config : kFamilyConfigs) {
    MutateFile("config.json", config, kFamilyFileRounds);
    if (testing::Test::HasFailure()) return;
  }
}

// Each number of a config in turn becomes a number that makes no model, or far
// too large a model. Whatever is built fits in memory.
TEST(ModelMutationTest, FamilyConfigsWithAbsurdNumbers) {
  const TempFolder folder;
  int written = 0;
  for (const std::string& config : kFamilyConfigs) {
    for (size_t at = 0; at < config.size(); ++at) {
      if (config[at] != ':' || config[at + 1] < '0' || config[at + 1] > '9') {
        continue;
      }
      const size_t end = config.find_first_of(",}", at);
      for (const char* number : {"0", "-1", "9999", "65535", "2147483647",
                                 "9223372036854775807", "1e300", "null"}) {
        std::string bytes = config;
        bytes.replace(at + 1, end - at - 1, number);
        // The layouts take turns, and a third is enough for both to meet every
        // number.
        const int turn = written++;
        if (turn % (3 * TestStride()) != 0) continue;
        const auto layout = (turn + turn / 8) % 2 == 0
                                ? ExpertLayout::kFused
                                : ExpertLayout::kPerExpert;
        ExpectSane(folder.Write("config.json", bytes),
                   {.expert_layout = layout}, bytes);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(ModelMutationTest, TsvList) {
  MutateFile("l.tsv",
             "wte\t10,8\tBF16\nm.experts.gate_up_proj\t2,6,4\tF32\n"
             "m.experts.down_proj\t2,4,3\tF32\nscale\t\tF64\nhalf\t2\tF4\n");
}

TEST(ModelMutationTest, JsonList) {
  MutateFile("l.json",
             R"([{"name":"wte","shape":[10,8],"dtype":"BF16"},
                 {"name":"m.experts.0.w1.weight","shape":[6,4],"dtype":"F32"},
                 {"name":"m.experts.0.w2.weight","shape":[4,6],"dtype":"F32"},
                 {"name":"m.experts.0.w3.weight","shape":[6,4],"dtype":"F32"},
                 {"name":"scale","shape":[],"dtype":"float64"}])");
}

}  // namespace
}  // namespace castor
