#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "ddl/error.hpp"

namespace ddl::test {

/// Returns the error that a call throws; fails the test if it throws none.
inline Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "expected an Error";
  return {ErrorCode::internal, ""};
}

/// Returns the message of the error that a call throws; fails the test if it throws none, or another code.
inline std::string message_of(ErrorCode code, const std::function<void()>& call) {
  const Error error = error_of(call);
  EXPECT_EQ(error.code(), code) << error.what();
  return error.what();
}

inline void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in: " << text;
  }
}

/// Expects an error of this code whose message contains all parts.
inline void expect_error(ErrorCode code, const std::vector<std::string>& parts,
                         const std::function<void()>& call) {
  expect_parts(message_of(code, call), parts);
}

}  // namespace ddl::test
