#pragma once

#include <ucs/type/status.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "collectives/transports/network/network.hpp"

namespace ddl::collectives {

/// Why a UCX network failed.
struct UcxFailure {
  enum class Kind : std::uint8_t { none, connection, left, length, transfer };
  Kind kind = Kind::none;
  ucs_status_t status = UCS_OK;
  int peer = -1;
  // Of the message:
  MessageTag tag = {};
  std::size_t bytes = 0;  ///< That were expected.
  std::size_t arrived = 0;
  bool receives = false;

  /// For people; empty for none.
  [[nodiscard]] std::string text() const;
};

}  // namespace ddl::collectives
