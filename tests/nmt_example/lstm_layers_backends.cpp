// The CUDA backend with each method of --rnn that computes whole layers.

#include <unistd.h>

#include "ddl/error.hpp"
#include "nmt_example/backend_test_support.hpp"

namespace nmt::test {
namespace {

/// Only a machine without a device may skip; an unusable device must fail.
std::string no_device() {
  try {
    cuda_devices();
  } catch (const ddl::Error& error) {
    if (access("/dev/nvidiactl", F_OK) != 0 && access("/dev/dxg", F_OK) != 0) return error.what();
  }
  return "";
}

std::unique_ptr<Backend> make_with_cudnn() {
  std::unique_ptr<Backend> backend = make_cuda_backend(0);
  backend->use_lstm(LstmMethod::cudnn);
  return backend;
}

}  // namespace

std::vector<BackendCase> backends_under_test() { return {{"Cudnn", make_with_cudnn, no_device}}; }

}  // namespace nmt::test
