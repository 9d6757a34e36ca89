#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "ddl/error.hpp"

namespace ddl::test {

/// What a call throws; fails the test if that is nothing.
inline Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "expected an Error";
  return {ErrorCode::internal, ""};
}

/// The message of what a call throws; fails the test if that is nothing or has another code.
inline std::string message_of(ErrorCode code, const std::function<void()>& call) {
  const Error error = error_of(call);
  EXPECT_EQ(error.code(), code) << error.what();
  return error.what();
}

}  // namespace ddl::test
