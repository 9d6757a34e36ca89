#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ddl/checkpoint.hpp"
#include "ddl/checkpoint/safetensors.hpp"
#include "ddl/files/durable_file.hpp"
#include "support/temporary_directory.hpp"

namespace ddl {
namespace {

// Only this project could read its checkpoints.
TEST(Safetensors, PythonReadsOursAndWeReadPythons) {
  const test::TemporaryDirectory temporary;
  std::vector<float> weights = {1, 2, 3, 4, 5, 6};
  std::vector<double> moments = {0.5, -0.25};
  std::vector<std::int32_t> counts = {-7};
  std::vector<std::int64_t> steps = {std::int64_t{1} << 40, -1};
  std::vector<std::uint8_t> bytes = {0, 255, 3};
  std::vector<float> scalar = {0.75f};
  const auto of = [](auto& values) { return std::as_writable_bytes(std::span(values)); };
  const std::vector<NamedTensor> tensors = {
      {"bytes \u00fc\"\\", DataType::u8, {3}, of(bytes)}, {"weights", DataType::f32, {2, 3}, of(weights)},
      {"counts", DataType::i32, {1}, of(counts)},         {"steps", DataType::i64, {2}, of(steps)},
      {"moments", DataType::f64, {2}, of(moments)},       {"empty", DataType::f32, {0, 3}, {}},
      {"scalar", DataType::f32, {}, of(scalar)}};
  safetensors::check(tensors);
  const auto ours = temporary.path() / "ours.safetensors";
  const auto theirs = temporary.path() / "theirs.safetensors";
  FileWriter file(ours);
  safetensors::write(file, tensors);
  file.finish();

  const std::string command =
      std::string(DDL_TEST_PYTHON " " DDL_TEST_SCRIPT " ") + ours.string() + " " + theirs.string();
  ASSERT_EQ(std::system(command.c_str()), 0) << command;

  const FileReader reader(theirs);
  const auto index = safetensors::read_index(reader);
  ASSERT_EQ(index.size(), tensors.size());
  for (const NamedTensor& tensor : tensors) {
    ASSERT_TRUE(index.contains(tensor.name)) << tensor.name;
    const safetensors::Entry& entry = index.at(tensor.name);
    EXPECT_EQ(entry.form.type, tensor.type) << tensor.name;
    EXPECT_EQ(entry.form.shape, tensor.shape) << tensor.name;
    std::vector<std::byte> found(entry.form.bytes());
    reader.read_at(entry.offset, found);
    ASSERT_EQ(found.size(), tensor.bytes.size()) << tensor.name;
    EXPECT_TRUE(std::equal(found.begin(), found.end(), tensor.bytes.begin())) << tensor.name;
  }
}

// The same for models saved in shards.
TEST(Safetensors, PythonPutsShardsTogether) {
  const test::TemporaryDirectory temporary;
  run_in_process(3, [&](Context& context) {
    std::vector<float> weights = {1, 2, 3, 4, 5, 6};
    std::vector<double> moments(4);
    const auto first = static_cast<std::size_t>(context.rank()) * moments.size();
    for (std::size_t i = 0; i < moments.size(); ++i) moments[i] = static_cast<double>(first + i) / 2;
    const CheckpointGroup group = {
        .whole = {{"weights", DataType::f32, {2, 3}, std::as_writable_bytes(std::span(weights))}},
        .slices = {{"moments", DataType::f64, {4, 3}, first, std::as_writable_bytes(std::span(moments))}}};
    Checkpoint(context, temporary.path(), {.sharded = true})
        .save(1, {.groups = {{"group", group}}, .state = "{}"});
  });
  const std::string command = std::string(DDL_TEST_PYTHON " " DDL_TEST_SHARDS_SCRIPT " ") +
                              (temporary.path() / "step-0000000001").string();
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

}  // namespace
}  // namespace ddl
