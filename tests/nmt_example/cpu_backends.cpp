#include "nmt_example/backend_test_support.hpp"

namespace nmt::test {

std::vector<BackendCase> backends_under_test() {
  return {BackendCase{"Reference", [] { return make_reference_backend(); }},
          BackendCase{"Cpu1Thread", [] { return make_cpu_backend(1); }},
          BackendCase{"Cpu2Threads", [] { return make_cpu_backend(2); }}};
}

std::vector<BackendCase> narrow_backends() {
  return {BackendCase{"Cpu", [] { return make_cpu_backend(2); }}};
}

}  // namespace nmt::test
