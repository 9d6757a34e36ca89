#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "ddl/context.hpp"
#include "ddl/work.hpp"
#include "matrix/case.hpp"
#include "matrix/values.hpp"

namespace matrix {

/// Memory between guard bytes, which must not be written to.
class GuardedBuffer {
 public:
  /// The data begin `shift` bytes after an aligned address and are filled with `garbage`.
  GuardedBuffer(ddl::Context& context, std::size_t bytes, bool is_registered, std::size_t shift);

  [[nodiscard]] std::span<std::byte> data() const { return {all() + begin_, bytes_}; }
  [[nodiscard]] bool is_guarded() const;

  static constexpr std::byte garbage{0xa5};

 private:
  [[nodiscard]] std::byte* all() const { return static_cast<std::byte*>(memory_.get()); }

  std::size_t bytes_;
  std::size_t begin_;
  std::size_t total_;
  std::shared_ptr<void> memory_;
};

/// One rank's part of one case: its memory, the call, and the check of the result. The case's number of ranks
/// is that of the communicator. The root varies with count and type.
class Trial {
 public:
  Trial(const Case& one, ddl::Context& context, const ddl::Communicator& communicator);

  /// Calls the collective, blocking or async as the case says, and waits for it.
  void run();
  /// Starts the collective. The trial must stay in place until the work is complete.
  ddl::Work start();
  /// Checks the result after completion; returns a description of what is wrong, or nothing.
  [[nodiscard]] std::string wrong() const;

 private:
  [[nodiscard]] bool has_input() const noexcept;
  [[nodiscard]] bool has_output() const noexcept;
  [[nodiscard]] std::size_t first_of_input() const noexcept;
  void call();

  Case case_;
  ddl::Communicator communicator_;
  int rank_;
  std::size_t ranks_;
  std::size_t count_;
  std::size_t element_;
  int root_;
  Inputs values_;
  GuardedBuffer whole_;     // the output; in place, also the input
  GuardedBuffer separate_;  // the input, if not in place
  std::span<std::byte> input_;
  std::span<std::byte> output_;
  // The call's arguments; null where this rank needs no memory.
  const std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;
};

}  // namespace matrix
