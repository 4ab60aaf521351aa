// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "chunk/base/status.h"

namespace castor {

std::string_view ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
      return "ok";
    case ErrorCode::kInternal:
      return "internal error";
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kInfeasible:
      return "does not fit";
    case ErrorCode::kMalformed:
      return "malformed input";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kStoppedEarly:
      return "stopped early";
    case ErrorCode::kTierFull:
      return "tier full";
    case ErrorCode::kIoError:
      return "input/output error";
    case ErrorCode::kDataLoss:
      return "data loss";
    case ErrorCode::kAborted:
      return "aborted";
    case ErrorCode::kFailedPrecondition:
      return "failed precondition";
  }
  return "unknown";
}

int ExitCode(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
      return 0;
    case ErrorCode::kInternal:
    case ErrorCode::kAborted:
      return 1;
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kFailedPrecondition:
      return 2;
    case ErrorCode::kInfeasible:
    case ErrorCode::kTierFull:
      return 3;
    case ErrorCode::kMalformed:
    case ErrorCode::kDataLoss:
      return 4;
    case ErrorCode::kUnavailable:
    case ErrorCode::kIoError:
      return 5;
    case ErrorCode::kStoppedEarly:
      return 6;
  }
  return 1;
}

Status::Status(ErrorCode code, std::string message) {
  if (code != ErrorCode::kOk) {
    rep_ = std::make_shared<const Rep>(Rep{code, std::move(message), {}});
  }
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  std::string text(ErrorCodeName(code()));
  text += ": ";
  text += message();
  return text;
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return *this;
  std::string text(context);
  text += ": ";
  text += message();
  return Status(code(), std::move(text))
      .WithRaises({raises().begin(), raises().end()});
}

Status Status::WithRaises(std::vector<BudgetRaise> raises) const {
  if (ok()) return *this;
  Status with = *this;
  with.rep_ = std::make_shared<const Rep>(
      Rep{code(), rep_->message, std::move(raises)});
  return with;
}

std::ostream& operator<<(std::ostream& out, const Status& status) {
  return out << status.ToString();
}

}  // namespace castor
