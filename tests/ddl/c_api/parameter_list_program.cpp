// ddl::ParameterList, compiled as C++11: what it registers, and what it refuses.
#undef NDEBUG
#include <cassert>
#include <ddl/parameter_list.hpp>
#include <stdexcept>
#include <string>
#include <vector>


namespace {

template <typename Exception, typename Call>
std::string message_of(const Call& call) {
  try {
    call();
  } catch (const Exception& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace

int main() {
  using Vector = std::vector<float>;
  Vector moments(3), weights(4), weight_gradient(4), biases(2);
  std::vector<Vector> samples(3, Vector(2));
  std::vector<double> scale(1), scale_gradient(1);
  ddl::ParameterList list;
  list.add(moments);
  list.add(weights, weight_gradient, "weights");
  list.add(biases, samples);
  list.add(scale, scale_gradient);

  assert(list.size() == 4);
  const ddl_parameter* const all = list.data();
  assert(all[0].name == nullptr && all[0].count == 3 && all[0].gradient == nullptr && all[0].type == DDL_F32);
  assert(all[1].name == std::string("weights") && all[1].values == weights.data());
  assert(all[1].gradient == weight_gradient.data() && all[1].summand_count == 0);
  assert(all[2].gradient == samples[0].data() && all[2].summand_count == 2);
  assert(all[2].summands[0] == samples[1].data() && all[2].summands[1] == samples[2].data());
  assert(all[3].type == DDL_F64 && all[3].count == 1);

  samples[2].resize(5);
  assert(message_of<std::invalid_argument>([&] { list.add(weights, biases, "weights"); }) ==
         "parameter weights: found a gradient of 2 elements, expected 4, as many as the parameter has");
  assert(message_of<std::invalid_argument>([&] { list.add(biases, samples); }) ==
         "parameter 4: found a gradient of 5 elements, expected 2, as many as the parameter has");
  samples.clear();
  assert(message_of<std::out_of_range>([&] { list.add(biases, samples); }) != "nothing was thrown");
  assert(list.size() == 4);

  // The job takes the list as it is.
  const ddl_reducer_options options = {DDL_GRADIENT_SUMS, 0, 0, 0, /*leave_sums=*/1, 0, 0};
  ddl_reducer* reducer = nullptr;
  assert(ddl_init(nullptr) == DDL_OK);
  samples.assign(3, Vector(2));
  ddl::ParameterList sums;
  sums.add(biases, samples);
  assert(ddl_broadcast_parameters(sums.data(), sums.size(), 0) == DDL_OK);
  assert(ddl_reducer_create(sums.data(), sums.size(), &options, &reducer) == DDL_OK);
  for (Vector& sample : samples) sample = {1, 2};
  assert(ddl_reducer_ready(reducer, 0) == DDL_OK && ddl_reducer_wait(reducer, 3, nullptr) == DDL_OK);
  assert(samples[0] == Vector({3, 6}) && samples[1] == Vector(2));
  ddl_reducer_free(reducer);
  assert(ddl_finalize() == DDL_OK);
  return 0;
}
