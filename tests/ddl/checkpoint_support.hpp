#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "ddl/checkpoint.hpp"
#include "ddl/checkpoint/checkpoint_manifest.hpp"
#include "ddl/error.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown_error.hpp"

namespace ddl::test {

namespace fs = std::filesystem;

template <typename T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

/// A model with a tensor of every type; `salt` determines the values.
struct Model {
  explicit Model(int salt) {
    std::iota(weights.begin(), weights.end(), static_cast<float>(salt));
    std::iota(moments.begin(), moments.end(), salt + 0.5);
    std::iota(bytes.begin(), bytes.end(), static_cast<std::uint8_t>(salt));
    counts = {salt, -salt};
    steps = {std::int64_t{1} << 40, salt};
  }

  std::vector<NamedTensor> tensors() {
    return {{"bytes", DataType::u8, {5}, bytes_of(bytes)},
            {"encoder/weights", DataType::f32, {2, 3}, bytes_of(weights)},
            {"moments", DataType::f64, {3}, bytes_of(moments)},
            {"counts", DataType::i32, {2, 1}, bytes_of(counts)},
            {"steps", DataType::i64, {2}, bytes_of(steps)},
            {"nothing", DataType::f32, {0, 7}, {}},
            {"scalar", DataType::f32, {}, std::as_writable_bytes(std::span(&scalar, 1))}};
  }
  CheckpointContents contents() {
    return {.groups = {{"model", {.whole = tensors()}}},
            .state = R"({"epoch":3})",
            .files = {{"vocabulary", "a\nb\n"}}};
  }
  bool operator==(const Model&) const = default;

  std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(5);
  std::vector<float> weights = std::vector<float>(6);
  std::vector<double> moments = std::vector<double>(3);
  std::vector<std::int32_t> counts;
  std::vector<std::int64_t> steps;
  float scalar = 0.25f;
};

inline void spill(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

inline std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

/// Like `expect_error`, for an agreed error.
inline void expect_agreed(ErrorCode code, const std::vector<std::string>& parts,
                          const std::function<void()>& body) {
  expect_error(code, parts, [&] {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_TRUE(error.agreed()) << error.what();
      throw;
    }
  });
}

inline void on_ranks(int ranks, const std::function<void(Context&)>& body) {
  InProcessOptions options;
  options.context.deadline = std::chrono::seconds(60);
  run_in_process(ranks, body, options);
}
inline void alone(const std::function<void(Context&)>& body) { on_ranks(1, body); }

inline fs::path save_model(const fs::path& directory, std::uint64_t step, int salt,
                           CheckpointOptions options = {.keep = 0}) {
  fs::path path;
  alone([&](Context& context) {
    Model model(salt);
    path = Checkpoint(context, directory, options).save(step, model.contents());
  });
  return path;
}

inline Model load_model(const fs::path& checkpoint) {
  Model model(0);
  alone([&](Context& context) {
    SavedCheckpoint::open(context, checkpoint).restore("model", {.whole = model.tensors()});
  });
  return model;
}

/// The step of the newest checkpoint; 0 if there is none.
inline std::uint64_t newest_step(const fs::path& directory) {
  std::uint64_t step = 0;
  alone([&](Context& context) {
    if (const auto saved = Checkpoint(context, directory).newest()) step = saved->step();
  });
  return step;
}

inline std::string step_name(std::uint64_t step) {
  const std::string digits = std::to_string(step);
  return "step-" + std::string(10 - digits.size(), '0') + digits;
}

class CheckpointTest : public ::testing::Test {
 protected:
  [[nodiscard]] const fs::path& root() const { return temporary_.path(); }

 private:
  TemporaryDirectory temporary_;
};

}  // namespace ddl::test
