#pragma once

namespace ddl::collectives {

/// While this lives, children that the process forks close the descriptor at once: a connection whose other
/// end waits for this process's death must not live on in one of its children. Descriptors that children get
/// by `exec` are looked after by O_CLOEXEC. Any thread; cannot be used in a child itself.
class ForkGuard {
 public:
  explicit ForkGuard(int descriptor);
  ForkGuard(ForkGuard&& other) noexcept;
  ForkGuard& operator=(ForkGuard&& other) noexcept;
  ~ForkGuard();

 private:
  int descriptor_;
};

}  // namespace ddl::collectives
