// ddl::ParameterList, ddl::Reducer and ddl::run, compiled as C++11: what they do, and what they refuse. With
// an argument, rank 1 of two throws.
#undef NDEBUG
#include <cassert>
#include <ddl/parameter_list.hpp>
#include <stdexcept>
#include <string>
#include <utility>
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

int main(int count, char** /*arguments*/) {
  if (count > 1) {
    return ddl::run(nullptr, [] {
      if (ddl_rank() == 1) throw std::runtime_error("no more data");
      ddl::throw_on_error(ddl_barrier());
    });
  }
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
  ddl::Reducer outlives_the_job;
  const int status = ddl::run(nullptr, [&] {
    ddl::Reducer reducer;
    assert(message_of<std::logic_error>([&] { reducer.ready(0); }) ==
           "ddl::Reducer: found no reducer, expected a call of bind before");
    for (const std::size_t size : {3U, 5U}) {  // the vectors move, and their number changes
      samples.assign(size, Vector(2));
      ddl::ParameterList sums;
      sums.add(biases, samples);
      reducer.bind(sums, ddl::leave_sums());
      for (Vector& sample : samples) sample = {1, 2};
      reducer.ready(0);
      assert(reducer.wait(3).weight == 3);
      assert(samples[0] == Vector({1.0F * size, 2.0F * size}) && samples[1] == Vector(2));
    }
    outlives_the_job = std::move(reducer);
    assert(reducer.get() == nullptr && outlives_the_job.get() != nullptr);

    ddl::ParameterList means;
    means.add(weights, weight_gradient);
    ddl::Reducer of_means(means, ddl::means());
    assert(message_of<std::runtime_error>([&] { of_means.ready(0); }).find("ddl_reducer_ready() before") !=
           std::string::npos);
    of_means.begin(2);
    of_means.absent(0);
    assert(message_of<std::runtime_error>([&] { of_means.wait(); }).find("before") != std::string::npos);
  });
  assert(status == 0 && ddl_rank() == -1);
  assert(ddl::run(nullptr, [] { assert(false && "a process can join a job only once"); }) == 1);
  return 0;
}
