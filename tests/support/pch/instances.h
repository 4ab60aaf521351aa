// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// As tools/pch/instances.h, of what tests instantiate of GoogleTest.

#include "tools/pch/instances.h"

CASTOR_INSTANCE class std::unique_ptr<std::string>;
CASTOR_INSTANCE class std::unique_ptr<std::stringstream>;
CASTOR_INSTANCE class std::mersenne_twister_engine<
    uint64_t, 64, 312, 156, 31, 0xb5026f5aa96619e9, 29, 0x5555555555555555, 17,
    0x71d67fffeda60000, 37, 0xfff7eee000000000, 43, 6364136223846793005>;

namespace testing {

CASTOR_INSTANCE std::string PrintToString<char const*>(const char* const&);
CASTOR_INSTANCE std::string PrintToString<double>(const double&);
CASTOR_INSTANCE std::string PrintToString<int>(const int&);
CASTOR_INSTANCE std::string PrintToString<int64_t>(const int64_t&);
CASTOR_INSTANCE std::string PrintToString<uint64_t>(const uint64_t&);
CASTOR_INSTANCE std::string PrintToString<std::string>(const std::string&);
CASTOR_INSTANCE std::string PrintToString<castor::Bytes>(const castor::Bytes&);
CASTOR_INSTANCE class Matcher<int64_t>;
CASTOR_INSTANCE class Matcher<const int64_t&>;
CASTOR_INSTANCE class Matcher<int>;
CASTOR_INSTANCE class Matcher<const int&>;
CASTOR_INSTANCE class Matcher<const std::vector<int>&>;
CASTOR_INSTANCE class Matcher<const std::vector<int64_t>&>;
CASTOR_INSTANCE class Matcher<const std::vector<std::string>&>;

namespace internal {

CASTOR_INSTANCE struct SuiteApiResolver<Test>;
CASTOR_INSTANCE class MatcherBase<const std::string&>;
CASTOR_INSTANCE class MatcherBase<const int64_t&>;
CASTOR_INSTANCE class MatcherBase<const int&>;
CASTOR_INSTANCE class MatcherBase<const castor::Status&>;
CASTOR_INSTANCE class MatcherBase<const std::vector<int>&>;
CASTOR_INSTANCE class MatcherBase<const std::vector<int64_t>&>;
CASTOR_INSTANCE class MatcherBase<const std::vector<std::string>&>;
CASTOR_INSTANCE class AllOfMatcherImpl<const std::string&>;
CASTOR_INSTANCE class ElementsAreMatcherImpl<const std::vector<int>&>;
CASTOR_INSTANCE class ElementsAreMatcherImpl<const std::vector<int64_t>&>;
CASTOR_INSTANCE class ElementsAreMatcherImpl<const std::vector<std::string>&>;
CASTOR_INSTANCE class HasSubstrMatcher<std::string>;

CASTOR_INSTANCE AssertionResult CmpHelperEQFailure<int, int>(const char*,
                                                             const char*,
                                                             const int&,
                                                             const int&);
CASTOR_INSTANCE AssertionResult CmpHelperEQFailure<int64_t, int>(const char*,
                                                                 const char*,
                                                                 const int64_t&,
                                                                 const int&);
CASTOR_INSTANCE AssertionResult CmpHelperEQFailure<int64_t, int64_t>(
    const char*, const char*, const int64_t&, const int64_t&);
CASTOR_INSTANCE AssertionResult CmpHelperEQFailure<uint64_t, unsigned>(
    const char*, const char*, const uint64_t&, const unsigned&);
CASTOR_INSTANCE AssertionResult CmpHelperEQFailure<uint64_t, uint64_t>(
    const char*, const char*, const uint64_t&, const uint64_t&);
CASTOR_INSTANCE AssertionResult CmpHelperEQFailure<std::string, std::string>(
    const char*, const char*, const std::string&, const std::string&);
CASTOR_INSTANCE AssertionResult CmpHelperOpFailure<int64_t, int>(
    const char*, const char*, const int64_t&, const int&, const char*);
CASTOR_INSTANCE AssertionResult CmpHelperOpFailure<int64_t, int64_t>(
    const char*, const char*, const int64_t&, const int64_t&, const char*);
CASTOR_INSTANCE AssertionResult CmpHelperOpFailure<int, int>(
    const char*, const char*, const int&, const int&, const char*);
CASTOR_INSTANCE AssertionResult CmpHelperOpFailure<uint64_t, unsigned>(
    const char*, const char*, const uint64_t&, const unsigned&, const char*);
CASTOR_INSTANCE AssertionResult CmpHelperOpFailure<uint64_t, uint64_t>(
    const char*, const char*, const uint64_t&, const uint64_t&, const char*);
CASTOR_INSTANCE AssertionResult CmpHelperOpFailure<double, double>(
    const char*, const char*, const double&, const double&, const char*);
CASTOR_INSTANCE AssertionResult
CmpHelperOpFailure<castor::Bytes, castor::Bytes>(const char*, const char*,
                                                 const castor::Bytes&,
                                                 const castor::Bytes&,
                                                 const char*);
CASTOR_INSTANCE AssertionResult
CmpHelperEQFailure<castor::Bytes, castor::Bytes>(const char*, const char*,
                                                 const castor::Bytes&,
                                                 const castor::Bytes&);
CASTOR_INSTANCE bool
MatchPrintAndExplain<const std::string, const std::string&>(
    const std::string&, const Matcher<const std::string&>&,
    MatchResultListener*);
CASTOR_INSTANCE bool
MatchPrintAndExplain<const std::vector<int64_t>, const std::vector<int64_t>&>(
    const std::vector<int64_t>&, const Matcher<const std::vector<int64_t>&>&,
    MatchResultListener*);
CASTOR_INSTANCE bool MatchPrintAndExplain<const std::vector<std::string>,
                                          const std::vector<std::string>&>(
    const std::vector<std::string>&,
    const Matcher<const std::vector<std::string>&>&, MatchResultListener*);
CASTOR_INSTANCE bool
MatchPrintAndExplain<const castor::Status, const castor::Status&>(
    const castor::Status&, const Matcher<const castor::Status&>&,
    MatchResultListener*);

}  // namespace internal

CASTOR_INSTANCE class PolymorphicMatcher<
    internal::HasSubstrMatcher<std::string>>;
CASTOR_INSTANCE
PolymorphicMatcher<internal::HasSubstrMatcher<std::string>>::operator Matcher<
    const std::string&>() const;
CASTOR_INSTANCE AssertionResult internal::PredicateFormatterFromMatcher<
    PolymorphicMatcher<internal::HasSubstrMatcher<std::string>>>::
operator()<std::string>(const char*, const std::string&) const;

}  // namespace testing

CASTOR_INSTANCE class std::vector<testing::Matcher<const std::string&>>;
CASTOR_INSTANCE class std::vector<testing::Matcher<const int64_t&>>;
CASTOR_INSTANCE class std::vector<testing::Matcher<const int&>>;
CASTOR_INSTANCE class std::optional<testing::Matcher<const std::string&>>;
