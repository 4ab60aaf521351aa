// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#ifndef CASTOR_CHUNK_BASE_STATUS_H_
#define CASTOR_CHUNK_BASE_STATUS_H_

// Status says how something ended that can go wrong in a correct program;
// Result<T> is a value or the Status that explains its absence. Success costs
// one null pointer. A message says what happened, why with numbers, and what to
// do next. Values: immutable once made, freely copied between threads.

#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/budget_raise.h"
#include "chunk/base/check.h"

namespace castor {

// Each code has one meaning to a caller; the command line turns it into the
// exit code given after it.
enum class ErrorCode {
  kOk,               // 0
  kInternal,         // 1  a defect of Castor
  kInvalidArgument,  // 2  the caller asked for something that has no meaning
  kInfeasible,       // 3  the answer is no: it does not fit, with numbers
  kMalformed,        // 4  an input file is broken; the message names the place
  kUnavailable,      // 5  this machine lacks something
  kStoppedEarly,     // 6  a partial result is valid
  kTierFull,         // 3  a tier has no free slot of the class asked for
  kIoError,          // 5  the system refused a transfer
  kDataLoss,         // 4  bytes came back that are not the bytes written
  kAborted,          // 1  another rank or an earlier failure ended this
  kFailedPrecondition,  // 2  a call out of order
};

std::string_view ErrorCodeName(ErrorCode code);

// The exit code that a command ends with for `code`.
int ExitCode(ErrorCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  Status(ErrorCode code, std::string message);

  bool ok() const { return rep_ == nullptr; }
  ErrorCode code() const { return rep_ ? rep_->code : ErrorCode::kOk; }
  std::string_view message() const {
    return rep_ ? std::string_view(rep_->message) : std::string_view();
  }
  // "code: message", or "ok".
  std::string ToString() const;

  // The same failure with `context` and a colon before its message.
  Status WithContext(std::string_view context) const;

  // The raises of budgets that the message names, each of them enough. They
  // stay with contexts.
  std::span<const BudgetRaise> raises() const {
    return rep_ ? std::span<const BudgetRaise>(rep_->raises)
                : std::span<const BudgetRaise>();
  }
  // The same failure with these raises, which its message names.
  Status WithRaises(std::vector<BudgetRaise> raises) const;

  // Says at the call that a failure is of no consequence there.
  void IgnoreError() const {}

 private:
  struct Rep {
    ErrorCode code;
    std::string message;
    std::vector<BudgetRaise> raises;
  };
  std::shared_ptr<const Rep> rep_;
};

inline Status OkStatus() { return Status(); }
inline Status Internal(std::string m) {
  return Status(ErrorCode::kInternal, std::move(m));
}
inline Status InvalidArgument(std::string m) {
  return Status(ErrorCode::kInvalidArgument, std::move(m));
}
inline Status Infeasible(std::string m) {
  return Status(ErrorCode::kInfeasible, std::move(m));
}
inline Status Malformed(std::string m) {
  return Status(ErrorCode::kMalformed, std::move(m));
}
inline Status Unavailable(std::string m) {
  return Status(ErrorCode::kUnavailable, std::move(m));
}
inline Status TierFull(std::string m) {
  return Status(ErrorCode::kTierFull, std::move(m));
}
inline Status IoError(std::string m) {
  return Status(ErrorCode::kIoError, std::move(m));
}
inline Status DataLoss(std::string m) {
  return Status(ErrorCode::kDataLoss, std::move(m));
}
inline Status Aborted(std::string m) {
  return Status(ErrorCode::kAborted, std::move(m));
}
inline Status FailedPrecondition(std::string m) {
  return Status(ErrorCode::kFailedPrecondition, std::move(m));
}

std::ostream& operator<<(std::ostream& out, const Status& status);

template <typename T>
class [[nodiscard]] Result {
 public:
  // Implicit, so that `return value;` and `return InvalidArgument(...)` both
  // read as what they mean.
  Result(T value) : value_(std::move(value)) {}         // NOLINT
  Result(Status status) : status_(std::move(status)) {  // NOLINT
    CASTOR_CHECK(!status_.ok());
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // REQUIRES: ok().
  T& value() & {
    CheckOk();
    return *value_;
  }
  const T& value() const& {
    CheckOk();
    return *value_;
  }
  T&& value() && {
    CheckOk();
    return *std::move(value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void CheckOk() const {
    if (!ok()) [[unlikely]] {
      internal::CheckFailed(__FILE__, __LINE__, "Result::ok()",
                            status_.message());
    }
  }

  std::optional<T> value_;
  Status status_;
};

}  // namespace castor

#define CASTOR_RETURN_IF_ERROR(expression)                                  \
  do {                                                                      \
    if (::castor::Status castor_status = (expression); !castor_status.ok()) \
        [[unlikely]]                                                        \
      return castor_status;                                                 \
  } while (false)

#define CASTOR_CONCAT_INNER_(a, b) a##b
#define CASTOR_CONCAT_(a, b) CASTOR_CONCAT_INNER_(a, b)

// CASTOR_ASSIGN_OR_RETURN(auto x, MakeX());
#define CASTOR_ASSIGN_OR_RETURN(declaration, expression)             \
  CASTOR_ASSIGN_OR_RETURN_(CASTOR_CONCAT_(castor_result_, __LINE__), \
                           declaration, expression)
#define CASTOR_ASSIGN_OR_RETURN_(result, declaration, expression) \
  auto result = (expression);                                     \
  if (!result.ok()) [[unlikely]]                                  \
    return result.status();                                       \
  declaration = std::move(result).value()

#endif  // CASTOR_CHUNK_BASE_STATUS_H_
