// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_TEXT_QUOTE_H_
#define CASTOR_CHUNK_TEXT_QUOTE_H_

// Foreign text made fit for a message. Names come from files that nobody
// vouches for: they may be megabytes long, or hold bytes that make a terminal
// do things. Pure functions, thread-safe.

#include <string>
#include <string_view>

namespace castor {

// `text` between double quotes, with quotes, backslashes, control characters
// and bytes that are not UTF-8 escaped as in C, and the middle of a long text
// left out.
std::string Quoted(std::string_view text);

// The same for a path, which is shown whole as far as the system allows it to
// be long, so that it can be copied.
std::string QuotedPath(std::string_view path);

}  // namespace castor

#endif  // CASTOR_CHUNK_TEXT_QUOTE_H_
