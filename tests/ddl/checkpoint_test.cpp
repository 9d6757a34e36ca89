#include "ddl/checkpoint.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "ddl/checkpoint_manifest.hpp"
#include "ddl/error.hpp"
#include "temporary_directory.hpp"

namespace ddl {
namespace {

namespace fs = std::filesystem;
using Steps = std::vector<std::uint64_t>;

/// A model with a tensor of every type, whose values follow from `salt`.
struct Model {
  explicit Model(int salt) {
    std::iota(weights.begin(), weights.end(), static_cast<float>(salt));
    std::iota(moments.begin(), moments.end(), salt + 0.5);
    std::iota(bytes.begin(), bytes.end(), static_cast<std::uint8_t>(salt));
    counts = {salt, -salt};
    steps = {std::int64_t{1} << 40, salt};
  }

  std::vector<NamedTensor> tensors() {
    return {{"bytes", DataType::u8, {5}, std::as_writable_bytes(std::span(bytes))},
            {"encoder/weights", DataType::f32, {2, 3}, std::as_writable_bytes(std::span(weights))},
            {"moments", DataType::f64, {3}, std::as_writable_bytes(std::span(moments))},
            {"counts", DataType::i32, {2, 1}, std::as_writable_bytes(std::span(counts))},
            {"steps", DataType::i64, {2}, std::as_writable_bytes(std::span(steps))},
            {"nothing", DataType::f32, {0, 7}, {}},
            {"scalar", DataType::f32, {}, std::as_writable_bytes(std::span(&scalar, 1))}};
  }
  CheckpointDirectory::Contents contents() {
    return {.groups = {{"model", tensors()}}, .state = R"({"epoch":3})", .files = {{"vocabulary", "a\nb\n"}}};
  }
  bool operator==(const Model&) const = default;

  std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(5);
  std::vector<float> weights = std::vector<float>(6);
  std::vector<double> moments = std::vector<double>(3);
  std::vector<std::int32_t> counts;
  std::vector<std::int64_t> steps;
  float scalar = 0.25f;
};

std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void spill(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

/// Runs `body`, expects an error of this kind whose text holds every one of `parts`.
void expect_error(ErrorCode code, const std::vector<std::string>& parts, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << part << " not in: " << error.what();
    }
    return;
  }
  ADD_FAILURE() << "no error";
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Puts other bytes in a checkpoint's file, with a manifest that fits them.
void forge(const fs::path& checkpoint, const std::string& name, const std::string& bytes) {
  spill(checkpoint / name, bytes);
  auto manifest = CheckpointManifest::read(checkpoint);
  manifest.files[name] = {};
  manifest.files[name].add(std::as_bytes(std::span(bytes)));
  spill(checkpoint / manifest_name, manifest.to_json());
}

std::string safetensors_file(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + header + std::string(data_bytes, 'x');
}

class CheckpointTest : public ::testing::Test {
 protected:
  const fs::path& root() const { return temporary_.path(); }
  fs::path save(std::uint64_t step, int salt) {
    Model model(salt);
    return CheckpointDirectory(root(), 0).save(step, model.contents());
  }
  static Model load(const fs::path& checkpoint) {
    Model model(0);
    CheckpointReader(checkpoint).read("model", model.tensors());
    return model;
  }

 private:
  test::TemporaryDirectory temporary_;
};

// Lost otherwise: the training run.
TEST_F(CheckpointTest, ReadsBackEveryBit) {
  Model model(42);
  model.weights[0] = std::numeric_limits<float>::denorm_min();
  CheckpointDirectory directory(root() / "made" / "on" / "demand");
  const fs::path path = directory.save(1234, model.contents());
  EXPECT_EQ(path.filename(), "step-0000001234");
  EXPECT_EQ(directory.newest(), 1234u);

  const CheckpointReader reader(path);
  EXPECT_EQ(reader.step(), 1234u);
  EXPECT_EQ(reader.state(), R"({"epoch":3})");
  EXPECT_EQ(reader.file("vocabulary"), "a\nb\n");
  EXPECT_TRUE(reader.has_group("model"));
  EXPECT_FALSE(reader.has_group("optimizer"));
  EXPECT_EQ(load(path), model);
  EXPECT_EQ(load(path / ""), model);
  EXPECT_EQ(names_in(path),
            (std::vector<std::string>{"manifest.json", "model.safetensors", "state.json", "vocabulary"}));
}

// Lost otherwise: safetensors readers that need the data aligned.
TEST_F(CheckpointTest, DataIsAlignedToEightBytes) {
  const std::string file = slurp(save(1, 1) / "model.safetensors");
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
  EXPECT_EQ(CheckpointDirectory(root()).newest(), std::nullopt);
  EXPECT_EQ(CheckpointDirectory(root() / "absent").steps(), Steps{});
}

// Lost otherwise: a disk filled with old checkpoints, or the newest one removed.
TEST_F(CheckpointTest, KeepsTheNewest) {
  CheckpointDirectory directory(root(), 2);
  Model model(1);
  for (const std::uint64_t step : {10, 30, 20, 40}) directory.save(step, model.contents());
  EXPECT_EQ(directory.steps(), (Steps{30, 40}));
  directory.save(5, model.contents());  // a run that went back: what it just wrote stays
  EXPECT_EQ(directory.steps(), (Steps{5, 40}));
  EXPECT_EQ(names_in(root()).size(), 2u);
}

TEST_F(CheckpointTest, KeepZeroKeepsAll) {
  for (int step = 1; step <= 8; ++step) save(static_cast<std::uint64_t>(step), step);
  EXPECT_EQ(CheckpointDirectory(root()).steps().size(), 8u);
}

// Lost otherwise: a resumed run that cannot write its first checkpoint.
TEST_F(CheckpointTest, SameStepIsReplaced) {
  save(7, 1);
  const fs::path path = save(7, 2);
  EXPECT_EQ(load(path), Model(2));
  EXPECT_EQ(names_in(root()), (std::vector<std::string>{"step-0000000007"}));
}

// Lost otherwise: disk space after every crash, or the checkpoint that was being replaced.
TEST_F(CheckpointTest, NextSaveClearsUpAfterACrash) {
  save(1, 1);
  fs::create_directories(root() / ".tmp-step-0000000002" / "deep");
  spill(root() / ".tmp-step-0000000002" / "model.safetensors", "half");
  fs::rename(root() / "step-0000000001", root() / ".replaced-step-0000000001");
  spill(root() / "notes.txt", "the user's");
  save(3, 3);
  EXPECT_EQ(names_in(root()), (std::vector<std::string>{"notes.txt", "step-0000000001", "step-0000000003"}));
  EXPECT_EQ(load(root() / "step-0000000001"), Model(1));
}

// Lost otherwise: all training since the last checkpoint, and that one too.
TEST_F(CheckpointTest, FailedWriteLeavesTheLastGoodCheckpoint) {
  save(1, 1);
  Model model(2);
  std::vector<float> large(1 << 16);
  auto contents = model.contents();
  contents.groups["model"].push_back(
      {"large", DataType::f32, {1 << 16}, std::as_writable_bytes(std::span(large))});

  // A limit on file sizes makes write() fail half-way, as a full disk does.
  ::rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ::rlimit small = before;
  small.rlim_cur = 100000;
  auto* const handler = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  for (const std::uint64_t step : {1, 2}) {
    expect_error(ErrorCode::io, {"model.safetensors", "write", "File too large"},
                 [&] { CheckpointDirectory(root()).save(step, contents); });
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);

  EXPECT_EQ(names_in(root()), (std::vector<std::string>{"step-0000000001"}));
  EXPECT_EQ(load(root() / "step-0000000001"), Model(1));
}

// The same on a disk that is really full; needs the right to mount.
TEST_F(CheckpointTest, FullDiskLeavesTheLastGoodCheckpoint) {
  const fs::path disk = root() / "disk";
  fs::create_directory(disk);
  if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("none", disk.c_str(), "tmpfs", 0, "size=96k") != 0) {
    GTEST_SKIP() << "no right to mount a small file system; FailedWriteLeavesTheLastGoodCheckpoint covers it";
  }
  CheckpointDirectory directory(disk);
  Model model(1);
  directory.save(1, model.contents());
  std::vector<float> large(1 << 16);
  auto contents = model.contents();
  contents.groups["optimizer"] = {
      {"large", DataType::f32, {1 << 16}, std::as_writable_bytes(std::span(large))}};
  expect_error(ErrorCode::io, {"optimizer.safetensors", "No space left on device"},
               [&] { directory.save(2, contents); });
  expect_error(ErrorCode::io, {"big", "No space left on device"},
               [&] { write_file_atomically(disk / "big", std::string(200000, 'x')); });
  EXPECT_EQ(names_in(disk), (std::vector<std::string>{"step-0000000001"}));
  EXPECT_EQ(load(directory.path_of(1)), model);
  EXPECT_EQ(::umount(disk.c_str()), 0);
}

// Lost otherwise: the reason why nothing is saved. A file in the path stands for a lack of permission,
// which root never sees.
TEST_F(CheckpointTest, UnwritableDirectoryIsNamed) {
  spill(root() / "file", "x");
  Model model(1);
  expect_error(ErrorCode::io, {"file", "Not a directory"},
               [&] { CheckpointDirectory(root() / "file" / "checkpoints").save(1, model.contents()); });
  expect_error(ErrorCode::io, {"file"},
               [&] { CheckpointDirectory(root() / "file").save(1, model.contents()); });
  expect_error(ErrorCode::io, {"/proc/ddl"},
               [&] { CheckpointDirectory("/proc/ddl").save(1, model.contents()); });
  expect_error(ErrorCode::io, {"file"},
               [&] { static_cast<void>(CheckpointDirectory(root() / "file").steps()); });
  expect_error(ErrorCode::io, {"Not a directory"},
               [&] { write_file_atomically(root() / "file" / "x", "x"); });
  EXPECT_EQ(slurp(root() / "file"), "x");
}

// Lost otherwise: a damaged model that loads and translates badly.
TEST_F(CheckpointTest, EveryAlteredByteIsNoticed) {
  const fs::path path = save(5, 5);
  for (const std::string& name : names_in(path)) {
    const std::string good = slurp(path / name);
    for (std::size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 1);
      spill(path / name, bad);
      EXPECT_THROW(static_cast<void>(CheckpointReader(path)), Error) << name << " byte " << i;
    }
    spill(path / name, good);
  }
  EXPECT_EQ(load(path), Model(5));
}

TEST_F(CheckpointTest, EveryTruncationIsNoticed) {
  const fs::path path = save(5, 5);
  for (const std::string& name : names_in(path)) {
    const std::string good = slurp(path / name);
    for (std::size_t size = 0; size + 1 < good.size(); ++size) {  // a manifest's last byte is a line end
      spill(path / name, good.substr(0, size));
      EXPECT_THROW(static_cast<void>(CheckpointReader(path)), Error) << name << " cut to " << size;
    }
    spill(path / name, good);
  }
}

// Lost otherwise: knowing which file is bad, and which checkpoint to use instead.
TEST_F(CheckpointTest, DamageNamesFileAndTheOlderWholeCheckpoint) {
  save(1, 1);
  save(2, 2);
  const fs::path path = save(3, 3);
  const std::string model = slurp(path / "model.safetensors");
  spill(root() / "step-0000000002" / "vocabulary", "b\nb\n");
  spill(path / "model.safetensors", model.substr(0, 100));
  expect_error(ErrorCode::corrupt_data,
               {"step-0000000003/model.safetensors", "found 100 bytes", std::to_string(model.size()),
                "whole is", "step-0000000001'"},
               [&] { CheckpointReader reader(path); });
  spill(root() / "step-0000000001" / "vocabulary", "");
  expect_error(ErrorCode::corrupt_data, {"no older checkpoint"}, [&] { CheckpointReader reader(path); });
}

// Lost otherwise: a run that silently starts from an older checkpoint, or from nothing.
TEST_F(CheckpointTest, MissingManifestIsNotPassedOver) {
  save(1, 1);
  const fs::path path = save(2, 2);
  fs::remove(path / "manifest.json");
  const CheckpointDirectory directory(root());
  EXPECT_EQ(directory.steps(), Steps{1});
  expect_error(ErrorCode::corrupt_data, {"step-0000000002/manifest.json", "no such file", "step-0000000001"},
               [&] { static_cast<void>(directory.newest()); });
  expect_error(ErrorCode::corrupt_data, {"manifest.json"}, [&] { CheckpointReader reader(path); });
  fs::remove_all(path);
  EXPECT_EQ(directory.newest(), 1u);
}

TEST_F(CheckpointTest, MissingFileIsNamed) {
  const fs::path path = save(1, 1);
  fs::remove(path / "vocabulary");
  expect_error(ErrorCode::corrupt_data, {"vocabulary", "no such file", "4 bytes"},
               [&] { CheckpointReader reader(path); });
  expect_error(ErrorCode::io, {"absent", "No such file"},
               [&] { CheckpointReader reader(root() / "absent"); });
}

TEST_F(CheckpointTest, NewerFormatIsNamed) {
  const fs::path path = save(1, 1);
  spill(path / "manifest.json", R"({"format_version": 2, "step": 1, "shards": []})");
  expect_error(ErrorCode::unsupported, {"manifest.json", "found format version 2", "at most 1"},
               [&] { CheckpointReader reader(path); });
  EXPECT_EQ(CheckpointDirectory(root()).newest(), 1u);
}

TEST_F(CheckpointTest, RenamedCheckpointIsNotTakenForAnotherStep) {
  fs::rename(save(1, 1), root() / "step-0000000009");
  expect_error(ErrorCode::corrupt_data, {"found step 1", "expected 9"},
               [&] { static_cast<void>(CheckpointDirectory(root()).newest()); });
  EXPECT_EQ(load(root() / "step-0000000009"), Model(1));
}

// Lost otherwise: files outside the checkpoint, read by a manifest from somebody else.
TEST_F(CheckpointTest, ManifestCannotNameOtherDirectories) {
  const fs::path path = save(1, 1);
  auto manifest = CheckpointManifest::read(path);
  manifest.files["../secret"] = {};
  spill(path / manifest_name, manifest.to_json());
  expect_error(ErrorCode::corrupt_data, {"../secret"}, [&] { CheckpointReader reader(path); });
}

// Lost otherwise: memory safety against a crafted file. Each header lies in one way.
TEST_F(CheckpointTest, LyingHeadersAreRejected) {
  const fs::path path = save(1, 1);
  std::vector<float> values(4);
  const std::vector<NamedTensor> wanted = {
      {"a", DataType::f32, {4}, std::as_writable_bytes(std::span(values))}};
  struct Case {
    const char* what;
    std::string file;
    std::string part;
  };
  const auto entry = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
  };
  const auto one = [&](const std::string& value) { return safetensors_file(R"({"a":)" + value + "}", 16); };
  const auto two = [&](const std::string& a, const std::string& b, std::size_t bytes) {
    return safetensors_file(R"({"a":)" + a + R"(,"b":)" + b + "}", bytes);
  };
  const std::string good = one(entry("F32", "[4]", "[0,16]"));
  std::string huge_length = good;
  huge_length.replace(0, 8, std::string(8, '\xff'));
  std::string long_length = good;
  long_length[7] = 1;
  const std::vector<Case> cases = {
      {"empty file", "", "found 0 bytes"},
      {"only a length", std::string(8, '\0'), "no JSON"},
      {"header length of 2^64-1", huge_length, "header length of 18446744073709551615"},
      {"header longer than the file", long_length, "header length"},
      {"no JSON", safetensors_file("{{{{", 0), "no JSON"},
      {"an array", safetensors_file("[]", 0), "no JSON"},
      {"entry of another kind", one("3"), "expected an object"},
      {"no shape", one(R"({"dtype":"F32","data_offsets":[0,16]})"), "expected an object"},
      {"unknown type", one(entry("F33", "[4]", "[0,16]")), "F33"},
      {"negative size", one(entry("F32", "[-4]", "[0,16]")), "shape"},
      {"fraction", one(entry("F32", "[4.0]", "[0,16]")), "shape"},
      {"size over 63 bits", one(entry("F32", "[9223372036854775808]", "[0,16]")), "shape"},
      {"outside the file", one(entry("F32", "[5]", "[0,20]")), "[0, 20]"},
      {"far outside", one(entry("F32", "[4]", "[18446744073709551600,18446744073709551615]")), "within"},
      {"backwards", one(entry("F32", "[4]", "[16,0]")), "[16, 0]"},
      {"negative offset", one(entry("F32", "[4]", "[-16,0]")), "no range"},
      {"one offset", one(entry("F32", "[4]", "[16]")), "no range"},
      {"shape larger than range", one(entry("F32", "[5]", "[0,16]")), "16 bytes of data"},
      {"product overflows to the range", one(entry("F32", "[4611686018427387904,4,4]", "[0,0]")), "64 bits"},
      {"gap at the front", one(entry("F32", "[3]", "[4,16]")), "gap"},
      {"bytes left over", one(entry("F32", "[3]", "[0,12]")), "4 bytes after the last tensor"},
      {"overlap", two(entry("F32", "[4]", "[0,16]"), entry("F32", "[2]", "[8,16]"), 16), "overlapping"},
      {"the same range twice", two(entry("F32", "[4]", "[0,16]"), entry("F32", "[4]", "[0,16]"), 16),
       "overlapping"},
  };
  forge(path, "model.safetensors", good);
  CheckpointReader(path).read("model", wanted);
  EXPECT_NE(values[0], 0.0f);
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    forge(path, "model.safetensors", test.file);
    const CheckpointReader reader(path);
    expect_error(ErrorCode::corrupt_data, {"model.safetensors", "expected", test.part},
                 [&] { reader.read("model", wanted); });
  }
}

// Lost otherwise: weights of another model in this one.
TEST_F(CheckpointTest, OtherModelIsNamedAndNothingFilled) {
  const CheckpointReader reader(save(1, 1));
  const auto attempt = [&](const std::vector<std::string>& parts, const auto& change) {
    Model model(9);
    auto tensors = model.tensors();
    change(tensors);
    expect_error(ErrorCode::mismatch, parts, [&] { reader.read("model", tensors); });
    EXPECT_EQ(model, Model(9));
  };
  attempt({"encoder/weights", "found f32 [2, 3]", "expected f32 [3, 2]"}, [](auto& t) {
    t[1].shape = {3, 2};
  });
  attempt({"encoder/weights", "f32", "expected i32"}, [](auto& t) { t[1].type = DataType::i32; });
  attempt({"steps", "expected nothing"}, [](auto& t) { t.erase(t.begin() + 4); });
  attempt({"renamed", "found nothing"}, [](auto& t) { t[6].name = "renamed"; });
  Model model(9);
  expect_error(ErrorCode::corrupt_data, {"optimizer.safetensors"},
               [&] { reader.read("optimizer", model.tensors()); });
  expect_error(ErrorCode::corrupt_data, {"merges"}, [&] { static_cast<void>(reader.file("merges")); });
}

// Lost otherwise: a checkpoint that can be written but never read.
TEST_F(CheckpointTest, WhatCannotBeSavedIsRefused) {
  CheckpointDirectory directory(root());
  const auto attempt = [&](const std::string& part, const auto& change) {
    Model model(1);
    auto contents = model.contents();
    change(contents);
    expect_error(ErrorCode::invalid_argument, {part}, [&] { directory.save(1, contents); });
  };
  attempt("a/b", [](auto& c) { c.files["a/b"] = ""; });
  attempt("..", [](auto& c) { c.files[".."] = ""; });
  attempt("manifest.json", [](auto& c) { c.files["manifest.json"] = ""; });
  attempt("state.json", [](auto& c) { c.files["state.json"] = ""; });
  attempt("model.safetensors", [](auto& c) { c.files["model.safetensors"] = ""; });
  attempt("UTF-8", [](auto& c) { c.files["\xff"] = ""; });
  attempt("no name", [](auto& c) { c.groups[""] = {}; });
  attempt("no JSON", [](auto& c) { c.state = "{"; });
  attempt("twice", [](auto& c) { c.groups["model"][1].name = "bytes"; });
  attempt("UTF-8", [](auto& c) { c.groups["model"][1].name = "\xc3"; });
  attempt("__metadata__", [](auto& c) { c.groups["model"][1].name = "__metadata__"; });
  attempt("24 bytes", [](auto& c) { c.groups["model"][1].shape = {7}; });
  attempt("-6", [](auto& c) { c.groups["model"][1].shape = {-6}; });
  EXPECT_EQ(names_in(root()), std::vector<std::string>{});
}

TEST_F(CheckpointTest, FilesAreReplacedAtomically) {
  const fs::path path = root() / "dev.txt";
  write_file_atomically(path, "one");
  write_file_atomically(path, std::string(3000000, 'x'));
  EXPECT_EQ(slurp(path), std::string(3000000, 'x'));
  expect_error(ErrorCode::io, {"directory"}, [&] {
    fs::create_directories(root() / "directory" / "full");
    write_file_atomically(root() / "directory", "x");
  });
  EXPECT_EQ(names_in(root()), (std::vector<std::string>{"dev.txt", "directory"}));
}

}  // namespace
}  // namespace ddl
