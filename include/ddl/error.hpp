#pragma once

#include <stdexcept>
#include <string>

#include "ddl/cxx20.hpp"  // first: the rest does not compile without C++20

namespace ddl {

/// The kind of an error. `Error::what()` says exactly what was found, where, what was expected, and what to
/// do.
enum class ErrorCode {
  invalid_argument,  ///< The caller passed a value that cannot work (a flag, a size, a rank).
  mismatch,          ///< Ranks, or a file and its reader, disagree: counts, types, model, settings.
  timeout,           ///< A deadline passed while waiting for a peer.
  peer_failed,       ///< A peer died or reported an error of its own.
  transport,         ///< Shared memory, a socket, UCX or MPI failed.
  io,                ///< A file or directory could not be read or written.
  corrupt_data,      ///< Input from outside is damaged or not in the expected format.
  unsupported,       ///< Not available in this build, on this machine or in this version.
  internal,          ///< A defect of the library; please report it.
};

/// The code's name, e.g. "invalid_argument".
const char* to_string(ErrorCode code) noexcept;

/// The only exception type the library throws.
class Error : public std::runtime_error {
 public:
  /// `message` is what `what()` returns.
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

  /// The kind of error.
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

  /// True if every rank of the job throws this same error at this same point (see `Context::on_all_ranks`),
  /// so that one rank may report it for all and the job can end in order.
  [[nodiscard]] bool agreed() const noexcept { return agreed_; }
  /// A copy for which `agreed` is true. For code that has made all ranks throw it.
  [[nodiscard]] Error as_agreed() const {
    Error copy = *this;
    copy.agreed_ = true;
    return copy;
  }

 private:
  ErrorCode code_;
  bool agreed_ = false;
};

}  // namespace ddl
