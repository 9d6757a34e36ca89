// The CUDA backend with the method of --rnn that computes whole layers.

#include "ddl/error.hpp"
#include "nmt_example/backend_test_support.hpp"
#include "support/nvidia_driver.hpp"

namespace nmt::test {
namespace {

/// Only a machine without a device may skip; an unusable device must fail.
std::string no_device() {
  try {
    cuda_devices();
  } catch (const ddl::Error& error) {
    if (!ddl::test::has_nvidia_driver()) return error.what();
  }
  return "";
}

template <MixedType type>
std::unique_ptr<Backend> make_with_cudnn() {
  std::unique_ptr<Backend> backend = make_cuda_backend(0, {.mixed_type = type});
  EXPECT_EQ(backend->use_lstm(LstmMethod::cudnn), "");
  return backend;
}

}  // namespace

std::vector<BackendCase> backends_under_test() {
  return {{"Cudnn", make_with_cudnn<MixedType::automatic>, no_device}};
}

std::vector<BackendCase> narrow_backends() {
  return {{"CudnnBf16", make_with_cudnn<MixedType::bf16>, no_device},
          {"CudnnF16", make_with_cudnn<MixedType::f16>, no_device}};
}

}  // namespace nmt::test
