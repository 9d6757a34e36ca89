// Checkpoints of one rank: writing, keeping, refusing. See checkpoint_ranks_test.cpp for several ranks,
// checkpoint_damage_test.cpp for damage, checkpoint_background_test.cpp for threads and signals.

#include "ddl/checkpoint.hpp"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "checkpoint_support.hpp"

namespace ddl::test {
namespace {

// The training run would be lost.
TEST_F(CheckpointTest, ReadsBackEveryBit) {
  Model model(42);
  model.weights[0] = std::numeric_limits<float>::denorm_min();
  model.weights[1] = -0.0f;
  model.weights[2] = std::numeric_limits<float>::infinity();
  const fs::path directory = root() / "made" / "on" / "demand";
  alone([&](Context& context) {
    Checkpoint checkpoint(context, directory);
    const fs::path path = checkpoint.save(1234, model.contents(), 21.5);
    EXPECT_EQ(path, directory / "step-0000001234");
    EXPECT_EQ(names_in(path),
              (std::vector<std::string>{"manifest.json", "model.safetensors", "state.json", "vocabulary"}));
    const auto saved = checkpoint.newest();
    ASSERT_TRUE(saved.has_value());
    EXPECT_EQ(saved->path(), path);
    EXPECT_EQ(saved->step(), 1234u);
    EXPECT_EQ(saved->state(), R"({"epoch":3})");
    EXPECT_EQ(saved->metric(), 21.5);
    EXPECT_EQ(saved->ranks(), 1);
    EXPECT_EQ(saved->file("vocabulary"), "a\nb\n");
    EXPECT_TRUE(saved->has_group("model"));
    EXPECT_FALSE(saved->has_group("optimizer"));
  });
  const Model found = load_model(directory / "step-0000001234");
  EXPECT_EQ(found, model);
  EXPECT_TRUE(std::signbit(found.weights[1]));
  EXPECT_EQ(load_model(directory / "step-0000001234" / ""), model);
}

// Models in 16-bit types could not be saved.
TEST_F(CheckpointTest, SixteenBitTensorsComeBack) {
  std::vector<std::uint16_t> half = {0x3c00, 0x7e01};
  std::vector<std::uint16_t> brain = {0x3f80, 0xffc1};
  alone([&](Context& context) {
    Checkpoint checkpoint(context, root());
    const auto group = [&](auto& a, auto& b) {
      return CheckpointGroup{
          .whole = {{"half", DataType::f16, {2}, bytes_of(a)}, {"brain", DataType::bf16, {2}, bytes_of(b)}}};
    };
    checkpoint.save(1, {.groups = {{"model", group(half, brain)}}, .state = "{}"});
    std::vector<std::uint16_t> a(2);
    std::vector<std::uint16_t> b(2);
    checkpoint.newest()->restore("model", group(a, b));
    EXPECT_EQ(a, half);
    EXPECT_EQ(b, brain);
  });
}

// Safetensors readers that need aligned data would fail.
TEST_F(CheckpointTest, DataIsAlignedToEightBytes) {
  const std::string file = contents(save_model(root(), 1, 1) / "model.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  EXPECT_EQ(length % 8, 0u);
  double first = 0;  // the largest elements come first
  std::int64_t steps = 0;
  std::memcpy(&first, file.data() + 8 + length, sizeof first);
  std::memcpy(&steps, file.data() + 8 + length + 24, sizeof steps);
  EXPECT_EQ(first, 1.5);
  EXPECT_EQ(steps, std::int64_t{1} << 40);
}

TEST_F(CheckpointTest, EmptyDirectoryHasNoCheckpoint) {
  EXPECT_EQ(newest_step(root()), 0u);
  EXPECT_EQ(newest_step(root() / "absent"), 0u);
}

// Old checkpoints would fill the disk, or the newest one would be removed.
TEST_F(CheckpointTest, KeepsTheNewest) {
  for (const std::uint64_t step : {10, 30, 20, 40}) save_model(root(), step, 1, {.keep = 2});
  EXPECT_EQ(names_in(root()), (std::vector{step_name(30), step_name(40)}));
  save_model(root(), 5, 1, {.keep = 2});  // a run that resumed from an earlier step keeps what it saves
  EXPECT_EQ(names_in(root()), (std::vector{step_name(5), step_name(40)}));
}

TEST_F(CheckpointTest, KeepZeroKeepsAll) {
  for (std::uint64_t step = 1; step <= 8; ++step) save_model(root(), step, 1);
  EXPECT_EQ(names_in(root()).size(), 8u);
}

// The model with the best score would be removed in favour of newer, worse ones.
TEST_F(CheckpointTest, KeepsTheBest) {
  alone([&](Context& context) {
    Checkpoint checkpoint(context, root(), {.keep = 1, .keep_best = 2});
    Model model(1);
    EXPECT_FALSE(checkpoint.best().has_value());
    checkpoint.save(1, model.contents(), 3);
    checkpoint.save(2, model.contents(), 7);
    checkpoint.save(3, model.contents(), -2);
    checkpoint.save(4, model.contents(), 7);
    checkpoint.save(5, model.contents());
    EXPECT_EQ(names_in(root()), (std::vector{step_name(2), step_name(4), step_name(5)}));
    EXPECT_EQ(checkpoint.best()->step(), 2u) << "of equal ones the earlier";
    checkpoint.save(6, model.contents(), 8);
    EXPECT_EQ(names_in(root()), (std::vector{step_name(2), step_name(6)}));
    EXPECT_EQ(checkpoint.best()->step(), 6u);
    EXPECT_EQ(checkpoint.best()->metric(), 8);
    EXPECT_EQ(checkpoint.newest()->step(), 6u);
  });
}

// A resumed run could not write its first checkpoint.
TEST_F(CheckpointTest, SameStepIsReplaced) {
  save_model(root(), 7, 1);
  const fs::path path = save_model(root(), 7, 2);
  EXPECT_EQ(load_model(path), Model(2));
  EXPECT_EQ(names_in(root()), (std::vector{step_name(7)}));
}

// Every crash would waste disk space, or lose the checkpoint that was being replaced.
TEST_F(CheckpointTest, NextSaveClearsUpAfterACrash) {
  save_model(root(), 1, 1);
  fs::create_directories(root() / ".tmp-step-0000000002" / "deep");
  spill(root() / ".tmp-step-0000000002" / "model.safetensors", "half");
  fs::rename(root() / "step-0000000001", root() / ".replaced-step-0000000001");
  spill(root() / "notes.txt", "the user's");
  save_model(root(), 3, 3);
  EXPECT_EQ(names_in(root()), (std::vector<std::string>{"notes.txt", step_name(1), step_name(3)}));
  EXPECT_EQ(load_model(root() / step_name(1)), Model(1));
}

// All training since the last checkpoint would be lost, and that checkpoint too.
TEST_F(CheckpointTest, FailedWriteLeavesTheLastGoodCheckpoint) {
  save_model(root(), 1, 1);
  // A limit on file sizes makes write() fail half-way, as a full disk does.
  ::rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ::rlimit small = before;
  small.rlim_cur = 100000;
  auto* const handler = ::signal(SIGXFSZ, SIG_IGN);
  for (const bool background : {false, true}) {
    alone([&](Context& context) {
      Checkpoint checkpoint(context, root(), {.background = background});
      Model model(2);
      std::vector<float> large(1 << 16);
      auto contents = model.contents();
      contents.groups["model"].whole.push_back({"large", DataType::f32, {1 << 16}, bytes_of(large)});
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
      for (const std::uint64_t step : {1, 2}) {
        expect_agreed(ErrorCode::io, {"model.safetensors", "write", "File too large"}, [&] {
          checkpoint.save(step, contents);
          checkpoint.wait();
        });
      }
      ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    });
    EXPECT_EQ(names_in(root()), (std::vector{step_name(1)}));
    EXPECT_EQ(load_model(root() / step_name(1)), Model(1));
  }
  ::signal(SIGXFSZ, handler);
}

// The same on a disk that is really full; needs the permission to mount.
TEST_F(CheckpointTest, FullDiskLeavesTheLastGoodCheckpoint) {
  const fs::path disk = root() / "disk";
  fs::create_directory(disk);
  if (::unshare(CLONE_NEWNS | CLONE_FS) != 0 ||
      ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("none", disk.c_str(), "tmpfs", 0, "size=96k") != 0) {
    GTEST_SKIP() << "no right to mount a small file system; FailedWriteLeavesTheLastGoodCheckpoint covers it";
  }
  alone([&](Context& context) {  // its thread starts after the mount and so sees it
    Checkpoint checkpoint(context, disk, {.background = true});
    Model model(1);
    checkpoint.save(1, model.contents());
    std::vector<float> large(1 << 16);
    auto contents = model.contents();
    contents.groups["optimizer"] = {.whole = {{"large", DataType::f32, {1 << 16}, bytes_of(large)}}};
    checkpoint.save(2, contents);
    expect_agreed(ErrorCode::io, {"optimizer.safetensors", "No space left on device"},
                  [&] { checkpoint.wait(); });
    EXPECT_EQ(names_in(disk), (std::vector{step_name(1)}));
    checkpoint.save(3, model.contents());
    checkpoint.wait();
    EXPECT_EQ(checkpoint.newest()->step(), 3u) << "nothing is saved any more once the disk has been full";
  });
  expect_error(ErrorCode::io, {"big", "No space left on device"},
               [&] { write_file_atomically(disk / "big", std::string(200000, 'x')); });
  EXPECT_EQ(load_model(disk / step_name(1)), Model(1));
  EXPECT_EQ(::umount(disk.c_str()), 0);
}

// The user would not learn why nothing is saved. A file in the path stands for a missing permission, which
// does not stop root.
TEST_F(CheckpointTest, UnwritableDirectoryIsNamed) {
  spill(root() / "file", "x");
  expect_agreed(ErrorCode::io, {"file", "Not a directory"},
                [&] { save_model(root() / "file" / "checkpoints", 1, 1); });
  expect_agreed(ErrorCode::io, {"file"}, [&] { save_model(root() / "file", 1, 1); });
  expect_agreed(ErrorCode::io, {"/proc/ddl"}, [&] { save_model("/proc/ddl", 1, 1); });
  expect_agreed(ErrorCode::io, {"file", "Not a directory"}, [&] { newest_step(root() / "file"); });
  expect_error(ErrorCode::io, {"Not a directory"},
               [&] { write_file_atomically(root() / "file" / "x", "x"); });
  EXPECT_EQ(contents(root() / "file"), "x");
}

// A model would get the weights of another one.
TEST_F(CheckpointTest, OtherModelIsNamedAndNothingFilled) {
  const fs::path path = save_model(root(), 1, 1);
  alone([&](Context& context) {
    const SavedCheckpoint saved = SavedCheckpoint::open(context, path);
    const auto attempt = [&](const std::vector<std::string>& parts, const auto& change) {
      Model model(9);
      auto tensors = model.tensors();
      change(tensors);
      expect_agreed(ErrorCode::mismatch, parts, [&] { saved.restore("model", {.whole = tensors}); });
      EXPECT_EQ(model, Model(9));
    };
    attempt({"encoder/weights", "found f32 [2, 3]", "expected f32 [3, 2]"}, [](auto& t) {
      t[1].shape = {3, 2};
    });
    attempt({"encoder/weights", "f32", "expected i32"}, [](auto& t) { t[1].type = DataType::i32; });
    attempt({"steps", "expected nothing"}, [](auto& t) { t.erase(t.begin() + 4); });
    attempt({"renamed", "found nothing"}, [](auto& t) { t[6].name = "renamed"; });
    Model model(9);
    expect_agreed(ErrorCode::mismatch, {"optimizer"},
                  [&] { saved.restore("optimizer", {.whole = model.tensors()}); });
    expect_agreed(ErrorCode::mismatch, {"merges"}, [&] { static_cast<void>(saved.file("merges")); });
  });
}

// A checkpoint could be written but never read.
TEST_F(CheckpointTest, WhatCannotBeSavedIsRefused) {
  alone([&](Context& context) {
    Checkpoint checkpoint(context, root());
    const auto attempt = [&](const std::string& part, const auto& change) {
      Model model(1);
      auto contents = model.contents();
      change(contents);
      expect_agreed(ErrorCode::invalid_argument, {part}, [&] { checkpoint.save(1, contents); });
    };
    const auto slice = [](std::int64_t size, std::uint64_t first) {
      static std::vector<float> values(2);
      return TensorSlice{"sliced", DataType::f32, {size}, first, bytes_of(values)};
    };
    attempt("a/b", [](auto& c) { c.files["a/b"] = ""; });
    attempt("..", [](auto& c) { c.files[".."] = ""; });
    attempt("manifest.json", [](auto& c) { c.files["manifest.json"] = ""; });
    attempt("state.json", [](auto& c) { c.files["state.json"] = ""; });
    attempt("model.safetensors", [](auto& c) { c.files["model.safetensors"] = ""; });
    attempt("UTF-8", [](auto& c) { c.files["\xff"] = ""; });
    attempt("no name", [](auto& c) { c.groups[""] = {}; });
    attempt("-of-", [](auto& c) { c.groups["model-00000-of-00001"] = {}; });
    attempt("no JSON", [](auto& c) { c.state = "{"; });
    attempt("twice", [](auto& c) { c.groups["model"].whole[1].name = "bytes"; });
    attempt("UTF-8", [](auto& c) { c.groups["model"].whole[1].name = "\xc3"; });
    attempt("__metadata__", [](auto& c) { c.groups["model"].whole[1].name = "__metadata__"; });
    attempt("24 bytes", [](auto& c) { c.groups["model"].whole[1].shape = {7}; });
    attempt("-6", [](auto& c) { c.groups["model"].whole[1].shape = {-6}; });
    attempt("2 elements from 3", [&](auto& c) { c.groups["model"].slices = {slice(4, 3)}; });
    attempt("64 bits", [&](auto& c) { c.groups["model"].slices = {slice(INT64_MAX, 0)}; });
    Model model(1);
    expect_agreed(ErrorCode::invalid_argument, {"nan"},
                  [&] { checkpoint.save(1, model.contents(), std::nan("")); });
    EXPECT_EQ(names_in(root()), std::vector<std::string>{});
    checkpoint.save(1, model.contents());  // it remains usable
  });
  EXPECT_EQ(load_model(root() / step_name(1)), Model(1));
}

TEST_F(CheckpointTest, FilesAreReplacedAtomically) {
  const fs::path path = root() / "dev.txt";
  write_file_atomically(path, "one");
  write_file_atomically(path, std::string(3000000, 'x'));
  EXPECT_EQ(contents(path), std::string(3000000, 'x'));
  expect_error(ErrorCode::io, {"directory"}, [&] {
    fs::create_directories(root() / "directory" / "full");
    write_file_atomically(root() / "directory", "x");
  });
  EXPECT_EQ(names_in(root()), (std::vector<std::string>{"dev.txt", "directory"}));
}

}  // namespace
}  // namespace ddl::test
