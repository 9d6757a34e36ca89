#include "collectives/memory/file_descriptor.hpp"

#include <unistd.h>

#include <utility>

namespace ddl::collectives {

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.release();
  }
  return *this;
}
FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}
int FileDescriptor::release() noexcept { return std::exchange(fd_, -1); }

}  // namespace ddl::collectives
