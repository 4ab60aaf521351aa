// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What most sources instantiate of the standard library, named so that each of
// those that are not optimised does not compile it again: a tenth to a fifth of
// what compiling one takes. Headers for compiling once end with it; with
// CASTOR_INSTANCE set to `template` it is the definitions. Chosen by what
// object files had most often in common.

#ifndef CASTOR_INSTANCE
#define CASTOR_INSTANCE extern template
#endif

CASTOR_INSTANCE class std::basic_string<char>;
CASTOR_INSTANCE std::string::basic_string(const char*,
                                          const std::allocator<char>&);
CASTOR_INSTANCE void std::string::_M_construct(const char*, const char*,
                                               std::forward_iterator_tag);
CASTOR_INSTANCE class std::_Sp_counted_base<__gnu_cxx::__default_lock_policy>;
CASTOR_INSTANCE class std::function<void()>;
CASTOR_INSTANCE class std::set<std::string>;
CASTOR_INSTANCE class std::vector<bool>;
CASTOR_INSTANCE class std::vector<double>;
CASTOR_INSTANCE class std::vector<float>;
CASTOR_INSTANCE class std::vector<int>;
CASTOR_INSTANCE class std::vector<int64_t>;
CASTOR_INSTANCE class std::vector<std::byte>;
CASTOR_INSTANCE class std::vector<std::string>;
CASTOR_INSTANCE class std::vector<uint64_t>;
CASTOR_INSTANCE class std::vector<castor::Bytes>;
CASTOR_INSTANCE class std::vector<castor::ChunkId>;
CASTOR_INSTANCE class std::vector<castor::Elements>;
CASTOR_INSTANCE class std::vector<castor::ParamId>;
