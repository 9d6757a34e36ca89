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

/// Memory with guards around it, which nobody may write.
class GuardedBuffer {
 public:
  /// Data begin `shift` bytes after an aligned address. Filled with `garbage`.
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

/// One rank's part of one case: its memory, the call, and what is wrong afterwards. The case's number of
/// ranks is that of the communicator. Roots take turns with counts and types.
class Trial {
 public:
  Trial(const Case& one, ddl::Context& context, const ddl::Communicator& communicator);

  /// Calls the collective; as the case says, blocking, or async and then waiting.
  void run();
  /// Starts it. The trial must not move, or end, before the work is done.
  ddl::Work start();
  /// Once it is done. Empty if nothing is wrong.
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
  GuardedBuffer whole_;     // the output, or all of what is in place
  GuardedBuffer separate_;  // the input out of place
  std::span<std::byte> input_;
  std::span<std::byte> output_;
  // What the call is given: null where a rank needs none.
  const std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;
};

}  // namespace matrix
