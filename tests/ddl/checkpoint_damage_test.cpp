// Checkpoints that are truncated, altered or forged.

#include <cstring>

#include "checkpoint_support.hpp"
#include "ddl/checkpoint/safetensors.hpp"

namespace ddl::test {
namespace {

/// Replaces the content of a checkpoint's file, and adapts the manifest to it.
void forge(const fs::path& checkpoint, const std::string& name, const std::string& bytes) {
  spill(checkpoint / name, bytes);
  auto manifest = CheckpointManifest::read(checkpoint);
  manifest.files[name] = {};
  manifest.files[name].add(std::as_bytes(std::span(bytes)));
  spill(checkpoint / manifest_name, manifest.to_json());
}

/// Replaces text of the manifest, and adapts the manifest's checksum.
void forge_manifest(const fs::path& checkpoint, const std::string& from, const std::string& to) {
  std::string text = contents(checkpoint / manifest_name);
  const std::size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from << " not in " << text;
  text.replace(at, from.size(), to);
  const std::string key = "\"checksum\": \"";
  const std::size_t digits = text.find(key) + key.size();
  text.replace(digits, 8, "00000000");
  FileSummary summary;
  summary.add(std::as_bytes(std::span(text)));
  char hex[9];
  std::snprintf(hex, sizeof hex, "%08x", summary.crc32);
  text.replace(digits, 8, hex);
  spill(checkpoint / manifest_name, text);
}

std::string safetensors_file(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + header + std::string(data_bytes, 'x');
}

/// The contents of a small sharded checkpoint of two ranks: a whole tensor, a sliced one, and one per rank.
struct Shards {
  explicit Shards(float salt) : whole{salt, salt + 1}, sliced(4, salt), own{salt} {}
  CheckpointGroup group(int rank) {
    return {.whole = {{"w", DataType::f32, {2}, bytes_of(whole)}},
            .slices = {{"s", DataType::f32, {4}, rank == 0 ? 0u : 2u, bytes_of(sliced).subspan(rank * 8, 8)}},
            .per_rank = {{"r", DataType::f32, {1}, bytes_of(own)}}};
  }
  std::vector<float> whole, sliced, own;
};

class DamagedShards : public CheckpointTest {
 protected:
  /// Saves steps 1 and 2 on two ranks, then runs `body` on both, in which rank 0 can alter step 2.
  void with_two_steps(const std::function<void(Context&, Checkpoint&)>& body) {
    on_ranks(2, [&](Context& context) {
      Checkpoint checkpoint(context, root(), {.sharded = true});
      for (const std::uint64_t step : {1, 2}) {
        Shards shards(static_cast<float>(step));
        checkpoint.save(step, {.groups = {{"g", shards.group(context.rank())}}, .state = "{}"});
      }
      body(context, checkpoint);
    });
  }

  /// Replaces each file of step 2 by each of its `variants`, and expects that step 1 is used and that a
  /// warning names the file.
  void expect_noticed(const std::function<std::vector<std::string>(const std::string&)>& variants) {
    testing::internal::CaptureStderr();
    std::size_t tried = 0;
    std::size_t noticed = 0;
    std::string first_missed;
    with_two_steps([&](Context& context, Checkpoint& checkpoint) {
      const fs::path newest = root() / step_name(2);
      for (const std::string& name : names_in(newest)) {
        const std::string good = contents(newest / name);
        for (const std::string& bad : variants(good)) {
          context.root_only("spoil", [&] { spill(newest / name, bad); });
          const auto saved = checkpoint.newest();
          if (!context.is_root()) continue;
          ++tried;
          if (saved && saved->step() == 1) {
            ++noticed;
          } else if (first_missed.empty()) {
            first_missed = name + " as " + bad;
          }
        }
        context.root_only("mend", [&] { spill(newest / name, good); });
      }
      const auto saved = checkpoint.newest();
      EXPECT_EQ(saved.value().step(), 2u);
      Shards shards(0);
      saved->restore("g", shards.group(context.rank()));
      EXPECT_EQ(shards.whole, (std::vector<float>{2, 3}));
    });
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_GT(tried, 1000u);
    EXPECT_EQ(noticed, tried) << first_missed;
    std::size_t warnings = 0;
    for (std::size_t at = log.find("used in its place"); at != std::string::npos;
         at = log.find("used in its place", at + 1)) {
      ++warnings;
    }
    EXPECT_EQ(warnings, tried);
    for (const char* const name : {"manifest.json", "state.json", "g-00000-of-00002.safetensors"})
      EXPECT_NE(log.find(step_name(2) + "/" + name), std::string::npos) << name;
    EXPECT_NE(log.find(step_name(1)), std::string::npos);
  }
};

// A damaged model would load and give bad results.
TEST_F(DamagedShards, EveryFlippedBitIsNoticedAndTheOneBeforeUsed) {
  expect_noticed([](const std::string& good) {
    std::vector<std::string> bad;
    for (std::size_t i = 0; i < good.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        bad.push_back(good);
        bad.back()[i] = static_cast<char>(bad.back()[i] ^ (1 << bit));
      }
    }
    return bad;
  });
}

// So would a truncated one, after a crash of the machine or the file system.
TEST_F(DamagedShards, EveryTruncationIsNoticedAndTheOneBeforeUsed) {
  expect_noticed([](const std::string& good) {
    std::vector<std::string> bad;
    for (std::size_t size = 0; size < good.size(); ++size) bad.push_back(good.substr(0, size));
    return bad;
  });
}

// A run would start anew and overwrite checkpoints that could still be repaired.
TEST_F(DamagedShards, AllDamagedIsAnErrorAndADamagedStepCanBeReplaced) {
  with_two_steps([&](Context& context, Checkpoint& checkpoint) {
    context.root_only("spoil", [&] {
      fs::remove(root() / step_name(1) / "g-00001-of-00002.safetensors");
      fs::remove(root() / step_name(2) / manifest_name);
    });
    expect_agreed(ErrorCode::corrupt_data,
                  {"all checkpoints in", "damaged", step_name(2) + "/manifest.json", "move them away"},
                  [&] { static_cast<void>(checkpoint.newest()); });
    Shards shards(2);
    checkpoint.save(2, {.groups = {{"g", shards.group(context.rank())}}, .state = "{}"});
    EXPECT_EQ(checkpoint.newest()->step(), 2u);
  });
  EXPECT_EQ(names_in(root()), (std::vector{step_name(1), step_name(2)})) << "damaged ones are left alone";
}

// An older program would start from an earlier state and lose what a newer program has trained.
TEST_F(CheckpointTest, NewerFormatIsAnError) {
  save_model(root(), 1, 1);
  const fs::path path = save_model(root(), 2, 2);
  forge_manifest(path, "\"format_version\": 2", "\"format_version\": 3");
  for (const auto& attempt :
       std::vector<std::function<void()>>{[&] { newest_step(root()); }, [&] { load_model(path); }}) {
    expect_agreed(ErrorCode::unsupported, {"manifest.json", "found format version 3", "expected 2", "newer"},
                  attempt);
  }
}

TEST_F(CheckpointTest, RenamedCheckpointIsNotTakenForAnotherStep) {
  fs::rename(save_model(root(), 1, 1), root() / step_name(9));
  expect_agreed(ErrorCode::corrupt_data, {"found step 1", "expected 9"}, [&] { newest_step(root()); });
  EXPECT_EQ(load_model(root() / step_name(9)), Model(1));
}

TEST_F(CheckpointTest, MissingFilesAreNamed) {
  const fs::path path = save_model(root(), 1, 1);
  fs::remove(path / "vocabulary");
  expect_agreed(ErrorCode::corrupt_data, {"vocabulary", "no such file", "4 bytes"},
                [&] { load_model(path); });
  expect_agreed(ErrorCode::io, {"absent", "No such file"}, [&] { load_model(root() / "absent"); });
}

// A forged manifest could read files outside the checkpoint, allocate memory for sizes that it only claims,
// or break memory safety.
TEST_F(CheckpointTest, LyingManifestsAreRejected) {
  struct Case {
    const char* from;
    const char* to;
    const char* part;
  };
  for (const Case& test : {
           Case{"\"vocabulary\"", "\"../secret\"", "../secret"},
           Case{"\"bytes\": 4", "\"bytes\": -4", "bytes"},
           Case{"\"bytes\": 4", "\"bytes\": 5", "found 4 bytes"},
           Case{"\"state.json\"", "\"stale.json\"", "state.json"},
           Case{"\"ranks\": 1", "\"ranks\": 0", "ranks"},
           Case{"\"ranks\": 1", "\"ranks\": 99999999999", "ranks"},
           Case{"\"sharded\": false", "\"sharded\": 0", "sharded"},
           Case{"\"sharded\": false", "\"sharded\": true", "model-00000-of-00001.safetensors"},
           Case{"\"metric\": null", "\"metric\": \"1\"", "metric"},
           Case{"\"metric\": null", "\"metric\": 1e999", "manifest"},
           Case{"\"dtype\": \"U8\"", "\"dtype\": \"U9\"", "type"},
           Case{"\"per_rank\": []", "\"per_rank\": [{}, {}]", "ranks"},
           Case{"\"per_rank\": []", "\"per_rank\": [{\"x\": {\"dtype\": \"U8\", \"shape\": [-1]}}]", "shape"},
           Case{"\"format_version\": 2", "\"format_version\": -2", "format_version"},
           Case{"\"files\": {", "\"files\": 1, \"other\": {", "files"},
       }) {
    SCOPED_TRACE(test.to);
    const fs::path path = save_model(root(), 1, 1);
    forge_manifest(path, test.from, test.to);
    expect_agreed(ErrorCode::corrupt_data, {"manifest", test.part}, [&] {
      try {
        load_model(path);
      } catch (const Error& error) {  // "found 4 bytes" names the file
        throw Error(error.code(), std::string("of the manifest: ") + error.what()).as_agreed();
      }
    });
  }
  const fs::path path = save_model(root(), 1, 1);
  auto manifest = CheckpointManifest::read(path);
  auto& weights = manifest.layout.groups["model"].tensors["encoder/weights"];
  const auto attempt = [&](const std::vector<TensorPiece>& pieces, const char* part) {
    weights.pieces = pieces;
    spill(path / manifest_name, manifest.to_json());
    expect_agreed(ErrorCode::corrupt_data, {"manifest.json", part}, [&] { load_model(path); });
  };
  attempt({}, "pieces");
  attempt({{0, 0, 5}}, "not the whole tensor");
  attempt({{0, 0, 3}, {0, 4, 2}}, "gap");
  attempt({{0, 0, 4}, {0, 3, 3}}, "overlap");
  attempt({{1, 0, 6}}, "rank");
  weights.form.shape = {INT64_MAX, 1};
  attempt({{0, 0, INT64_MAX}}, "64 bits");
  weights.form.shape = {INT64_MAX / 8, 1};  // well-formed, but not the file's
  weights.pieces = {{0, 0, INT64_MAX / 8}};
  spill(path / manifest_name, manifest.to_json());
  expect_agreed(ErrorCode::mismatch, {"encoder/weights", "expected f32 [2, 3]"}, [&] { load_model(path); });
}

// A crafted file could break memory safety. Each header is wrong in one way.
TEST_F(CheckpointTest, LyingHeadersAreRejected) {
  std::vector<float> values(4);
  const CheckpointGroup wanted = {.whole = {{"a", DataType::f32, {4}, bytes_of(values)}}};
  fs::path path;
  alone([&](Context& context) {
    path = Checkpoint(context, root()).save(1, {.groups = {{"model", wanted}}, .state = "{}"});
  });
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
      {"another shape than the manifest's", one(entry("F32", "[2,2]", "[0,16]")), "f32 [2, 2]"},
      {"another type than the manifest's", one(entry("I32", "[4]", "[0,16]")), "i32 [4]"},
      {"a tensor that the manifest lacks",
       two(entry("F32", "[4]", "[0,16]"), entry("F32", "[1]", "[16,20]"), 20), "tensor 'b'"},
      {"no tensor", safetensors_file("{}", 0), "no tensor 'a'"},
  };
  alone([&](Context& context) {
    const auto read = [&] { SavedCheckpoint::open(context, path).restore("model", wanted); };
    forge(path, "model.safetensors", good);
    read();
    EXPECT_NE(values[0], 0.0f);
    for (const Case& test : cases) {
      SCOPED_TRACE(test.what);
      forge(path, "model.safetensors", test.file);
      expect_agreed(ErrorCode::corrupt_data, {"model.safetensors", "expected", test.part}, read);
    }
  });
}

}  // namespace
}  // namespace ddl::test
