#pragma once

namespace matrix {

/// Whether mpirun started this process.
bool is_under_mpirun();

/// Initializes and finalizes MPI for a program that makes several contexts in turn. One rank in a build
/// without MPI.
class MpiSession {
 public:
  MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  ~MpiSession();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }
  /// The sum over all ranks. Collective.
  [[nodiscard]] int sum(int value) const;
  /// Ends all ranks.
  [[noreturn]] static void abort();

 private:
  int rank_ = 0;
  int ranks_ = 1;
};

}  // namespace matrix
