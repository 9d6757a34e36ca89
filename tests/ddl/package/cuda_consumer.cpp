// Another project's trainer with gradients on a device.
#include <cstdio>
#include <ddl/ddl.hpp>
#include <ddl/device.hpp>

int main() {
  return ddl::Context::run_from_environment([](ddl::Context& context) {
    ddl::DeviceCommunicator devices(context);
    auto* const values = reinterpret_cast<float*>(devices.allocate(1000 * sizeof(float)).data);
    ddl::GradientReducer reducer(devices, {{"weight", {values, 1000}}},
                                 {.gradients = ddl::GradientKind::sum});
    reducer.ready(0, nullptr);
    reducer.finish(1, nullptr);
    std::printf("%s: norm %g\n", devices.device_name().c_str(), reducer.result().norm);
    return 0;
  });
}
