// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_TOOLS_MODELS_FAMILIES_FAMILY_TABLE_H_
#define CASTOR_TOOLS_MODELS_FAMILIES_FAMILY_TABLE_H_

// Part of the families (family_model.h): families.txt, which is a table of all
// of them, and expressions over the sizes of one. A line is words; lines that
// are indented more belong to the one above. Expressions are words, too: whole
// numbers, names of sizes, + - * / %, == != <, & | ! with 0 for no, and
// LIST[EXPRESSION], 1 where the list holds that number.
//
//   family TYPE ARCHITECTURE...  the default first
//     bare ARCHITECTURE       the same without what has not the prefix
//     prefix PREFIX           that files may leave out of names
//     int KEY=DEFAULT ...     sizes from the config. KEY|ALIAS is read by
//                             either name, KEY=DEFAULT[LEAST:MOST] within
//                             bounds (1 and up), KEY=DEFAULT?NULL may be null
//     bool KEY=DEFAULT ...    1 or 0; KEY=DEFAULT? may be null, which is no
//     list KEY                whole numbers
//     gated KEY               1 where a text begins with "gated-"
//     let NAME=EXPRESSION ... sizes that follow from others
//     multiple A B            refuses a model where B does not divide A
//     bound_experts A LAYERS  refuses more experts than a list may have
//     use PART                the lines of a part
//     layer PART              what `use layer` stands for
//     if EXPRESSION, else     an ARCHITECTURE, `fused` are 1 for what is asked
//     in PREFIX               names below begin so, after what is around
//     each NAME COUNT PREFIX  the same COUNT times; {EXPRESSION} in names
//     param NAME DIM...
//     linear NAME,... IN OUT [BIAS]    weight [OUT,IN] and bias [OUT]
//     conv NAME,... IN OUT             weight [IN,OUT] and bias [OUT]
//     norm NAME,... WIDTH              weight
//     layernorm NAME,... WIDTH         weight and bias
//     mlp PREFIX WIDTH INNER BIAS      gate_proj, up_proj, down_proj
//     experts NAME COUNT WIDTH INNER   as expert_layout.h has them
//     head NAME TO VOCAB WIDTH         unless tie_word_embeddings: then tied
//     tied NAME TO, spelling FILE LISTED, ignored PREFIX   of FamilyModel
//
// Immutable, thread-safe.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "chunk/base/status.h"

namespace castor {

struct FamilyLine {
  std::vector<std::string> words;
  std::vector<FamilyLine> below;
};

// The line `word` NAME at the top; null where there is none.
const FamilyLine* FindFamilyLine(std::string_view word, std::string_view name);
// All of them.
const std::vector<FamilyLine>& FamilyLines();

// What a name stands for; of a list, whether it holds the number given.
using FamilyNames = std::function<int64_t(std::string_view name,
                                          std::optional<int64_t> element)>;

// Malformed where a number is too large. REQUIRES: an expression as above.
Result<int64_t> EvaluateFamily(std::string_view expression,
                               const FamilyNames& names);

}  // namespace castor

#endif  // CASTOR_TOOLS_MODELS_FAMILIES_FAMILY_TABLE_H_
