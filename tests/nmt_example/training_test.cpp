// Whole training runs of a tiny model on in-process ranks: the guarantees of starting and resuming runs.

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "ddl/checkpoint.hpp"
#include "nmt_example/data/number_corpus.hpp"
#include "nmt_example/options/flag_table.hpp"
#include "nmt_example/training/phases.hpp"
#include "nmt_example/training/saved_run.hpp"
#include "nmt_example/training/setup.hpp"
#include "nmt_example/training/trainer.hpp"
#include "support/job_options.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown_error.hpp"

namespace nmt {
namespace {

namespace fs = std::filesystem;

/// One line of the step log.
struct LoggedStep {
  std::int64_t step;
  double loss, gradient_norm, learning_rate, words;
};

std::vector<LoggedStep> read_log(const fs::path& path) {
  std::ifstream file(path);
  std::vector<LoggedStep> steps;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    if (!json.contains("loss")) continue;  // scores
    steps.push_back(
        {json.at("step"), json.at("loss"), json.at("grad_norm"), json.at("lr"), json.at("words")});
  }
  return steps;
}

std::set<std::string> names_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename().string());
  return names;
}

ddl::InProcessOptions quiet() {
  ddl::InProcessOptions settings = ddl::test::on_hosts();
  settings.context.debug_level = 0;
  return settings;
}

class Training : public testing::Test {
 protected:
  Training() {
    write_corpus("train", 240, CorpusSplit::train);
    write_corpus("dev", 6, CorpusSplit::dev);
  }

  [[nodiscard]] fs::path path(const std::string& name) const { return directory_.path() / name; }

  void write_corpus(const std::string& name, std::size_t sentences, CorpusSplit split) const {
    const ParallelText text = number_corpus(split, sentences, 3);
    write_lines(name + ".en", text.source);
    write_lines(name + ".de", text.target);
  }
  void write_lines(const std::string& name, const std::vector<std::string>& lines) const {
    std::ofstream file(path(name));
    for (const std::string& line : lines) file << line << '\n';
  }

  /// Options of a tiny model with dropout, for the corpus written above.
  [[nodiscard]] ParsedOptions options() const {
    ParsedOptions parsed;
    for (const Flag& flag : all_flags()) {
      if (flag.name != "override_loaded_hparams") parsed.explicitly_set.emplace_back(flag.name);
    }
    Options& o = parsed.options;
    o.src = "en";
    o.tgt = "de";
    o.train_prefix = path("train").string();
    o.dev_prefix = path("dev").string();
    o.vocab_size = 120;
    o.share_vocab = true;
    o.num_units = 16;
    o.num_layers = 2;
    o.encoder_type = EncoderType::bi;
    o.attention = AttentionKind::scaled_luong;
    o.dropout = 0.3;
    o.label_smoothing = 0.1;
    o.optimizer = OptimizerKind::adam;
    o.learning_rate = 0.005;
    o.decay_scheme = DecayScheme::cosine;
    o.batch_size = 8;
    o.num_train_steps = 12;
    o.steps_per_stats = 1000;
    o.steps_per_eval = 1000;
    o.steps_per_external_eval = 1000;
    o.threads = 1;
    o.tgt_max_len_infer = 4;
    return parsed;
  }

  /// Trains on `ranks` ranks; returns rank 0's output.
  static std::string run(int ranks, const ParsedOptions& parsed, const std::vector<std::string>& hosts = {}) {
    std::ostringstream out;
    ddl::InProcessOptions settings = quiet();
    settings.hosts = hosts;
    ddl::run_in_process(
        ranks,
        [&](ddl::Context& context) {
          std::ostringstream nowhere;
          train(context, parsed, context.is_root() ? out : nowhere);
          EXPECT_EQ(nowhere.str(), "") << "only rank 0 may write";
        },
        settings);
    return out.str();
  }

  /// The error message of a run, which is the same on every rank.
  static std::string error_of_run(int ranks, const ParsedOptions& parsed, ddl::ErrorCode code) {
    std::mutex mutex;
    std::set<std::string> messages;
    ddl::run_in_process(
        ranks,
        [&](ddl::Context& context) {
          std::ostringstream out;
          const ddl::Error error = ddl::test::error_of([&] { train(context, parsed, out); });
          EXPECT_EQ(error.code(), code) << error.what();
          EXPECT_TRUE(error.agreed());
          const std::lock_guard lock(mutex);
          messages.insert(error.what());
        },
        quiet());
    EXPECT_EQ(messages.size(), 1u);
    return *messages.begin();
  }

  /// The log of a run with a given global batch on any number of ranks.
  std::vector<LoggedStep> log_of(int ranks, ParsedOptions parsed, int global_batch,
                                 const std::vector<std::string>& hosts = {}) const {
    parsed.options.batch_size = global_batch / ranks;
    parsed.options.log_jsonl = path("log").string();
    run(ranks, parsed, hosts);
    return read_log(path("log"));
  }

 private:
  ddl::test::TemporaryDirectory directory_;
};

void expect_same_losses(const std::vector<LoggedStep>& found, const std::vector<LoggedStep>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i].loss / expected[i].loss, 1.0, 1e-4) << "step " << found[i].step;
    EXPECT_EQ(found[i].words, expected[i].words) << "step " << found[i].step;
  }
}

void expect_same_bits(const std::vector<LoggedStep>& found, const std::vector<LoggedStep>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].step, expected[i].step);
    EXPECT_EQ(found[i].loss, expected[i].loss) << "step " << found[i].step;
    EXPECT_EQ(found[i].gradient_norm, expected[i].gradient_norm) << "step " << found[i].step;
    EXPECT_EQ(found[i].learning_rate, expected[i].learning_rate) << "step " << found[i].step;
  }
}

/// Expects the same bits in the models and optimisers of two checkpoints.
void expect_same_tensors(const fs::path& found, const fs::path& expected) {
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "average.safetensors"}) {
    ASSERT_EQ(fs::exists(found / file), fs::exists(expected / file)) << file;
    EXPECT_TRUE(ddl::test::contents(found / file) == ddl::test::contents(expected / file))
        << file << " differs";
  }
}

// Adding workers would change the result of training, not only its speed.
TEST_F(Training, SameGlobalBatchGivesSameLossesOnAnyNumberOfRanks) {
  for (const OptimizerKind optimizer : {OptimizerKind::adam, OptimizerKind::sgd}) {
    SCOPED_TRACE(name_of(optimizer));
    ParsedOptions parsed = options();
    parsed.options.num_train_steps = 50;
    parsed.options.optimizer = optimizer;
    if (parsed.options.optimizer == OptimizerKind::sgd) parsed.options.learning_rate = 0.1;
    const auto one = log_of(1, parsed, 16);
    ASSERT_EQ(one.size(), 50u);
    EXPECT_LT(one.back().loss, one.front().loss) << "nothing was learned, so nothing was compared";
    expect_same_losses(log_of(2, parsed, 16), one);
    const auto four = log_of(4, parsed, 16);
    expect_same_losses(four, one);
    expect_same_losses(log_of(4, parsed, 16, {"a", "a", "b", "b"}), four);
    expect_same_losses(log_of(4, parsed, 16, {"a", "b", "a", "b"}), four);
  }
}

// The last batches of an epoch, with fewer sentences than ranks, would hang or give wrong means.
TEST_F(Training, RanksWithoutASentenceInAStepAreNoTrouble) {
  write_corpus("train", 13, CorpusSplit::train);
  ParsedOptions parsed = options();
  parsed.options.num_train_steps = 10;
  parsed.options.num_buckets = 1;  // alternating batches of 12 sentences and of 1
  const auto one = log_of(1, parsed, 12);
  const auto three = log_of(3, parsed, 12);
  EXPECT_LT(std::min(three[0].words, three[1].words), 0.5 * std::max(three[0].words, three[1].words));
  expect_same_losses(three, one);
}

// A run that is stopped and resumed would differ from one that never stopped.
TEST_F(Training, ResumedRunHasTheBitsOfTheRunThatNeverStopped) {
  for (const OptimizerKind optimizer : {OptimizerKind::adam, OptimizerKind::sgd}) {
    ParsedOptions parsed = options();
    parsed.options.optimizer = optimizer;
    parsed.options.num_train_steps = 24;  // longer than an epoch
    parsed.options.steps_per_eval = 5;
    parsed.options.steps_per_external_eval = 10;
    parsed.options.num_keep_ckpts = 0;
    parsed.options.drift_check_steps = 7;
    for (const char* name : {"whole", "resumed"}) fs::remove_all(path(name));
    parsed.options.out_dir = path("whole").string();
    parsed.options.log_jsonl = path("whole.jsonl").string();
    run(2, parsed);
    const auto whole = read_log(path("whole.jsonl"));
    ASSERT_EQ(whole.size(), 24u);

    fs::create_directory(path("resumed"));
    fs::copy(path("whole") / "step-0000000015", path("resumed") / "step-0000000015",
             fs::copy_options::recursive);
    fs::copy_file(path("whole.jsonl"), path("resumed.jsonl"), fs::copy_options::overwrite_existing);
    parsed.options.out_dir = path("resumed").string();
    parsed.options.log_jsonl = path("resumed.jsonl").string();
    const std::string output = run(2, parsed);
    EXPECT_NE(output.find("going on from step 15\n"), std::string::npos) << output;
    expect_same_bits(read_log(path("resumed.jsonl")), whole);
    expect_same_tensors(path("resumed") / "step-0000000024", path("whole") / "step-0000000024");
  }
}

// A run would encode its text again at each start; or not, though the text has changed.
TEST_F(Training, EncodedTextIsKeptBesideTheCheckpoints) {
  ParsedOptions parsed = options();
  const auto changes = [&](const char* out_dir, const std::function<void()>& change_text) {
    const auto inode = [&] {
      struct stat status {};
      EXPECT_EQ(::stat((path(out_dir) / "train.data").c_str(), &status), 0);
      return status.st_ino;
    };
    parsed.options.out_dir = path(out_dir).string();
    parsed.options.num_train_steps = 2;
    run(2, parsed);
    const auto first = inode();
    parsed.options.num_train_steps = 4;
    run(2, parsed);
    EXPECT_EQ(inode(), first) << "encoded again";
    change_text();
    parsed.options.num_train_steps = 6;
    const std::string message = error_of_run(2, parsed, ddl::ErrorCode::mismatch);
    EXPECT_NE(message.find("other sentences"), std::string::npos) << message;
    EXPECT_NE(inode(), first) << "the old text's";
  };
  changes("files", [&] { write_corpus("train", 250, CorpusSplit::train); });
  parsed.options.train_prefix.clear();
  parsed.options.builtin_corpus = 300;
  changes("generated", [&] { parsed.options.builtin_corpus = 301; });
}

// Batches by words would be larger than was asked for, or than the memory that is planned for them; or depend
// on the number of ranks.
TEST_F(Training, BatchesByWordsHaveAtMostSoMany) {
  ParsedOptions parsed = options();
  parsed.options.num_train_steps = 30;
  parsed.options.subword_sampling = 0.5;
  parsed.options.phase1_steps = 8;
  parsed.options.phase1_max_len = 24;
  const auto log = [&](int ranks, int micro_batch) {
    ParsedOptions now = parsed;
    now.options.batch_words = 400 / ranks;
    now.options.micro_batch_size = micro_batch;
    return log_of(ranks, now, 16);
  };
  const auto one = log(1, 0);
  ASSERT_EQ(one.size(), 30U);
  expect_same_losses(log(2, 0), one);
  expect_same_losses(log(1, 5), one);
  parsed.options.subword_sampling = 0;
  const auto plain = log(1, 0);
  double words = 0;
  for (const LoggedStep& step : plain) {
    EXPECT_LE(step.words, 400 + 400 / 6);  // with </s>, for pairs of at least 6 words
    words += step.words;
  }
  EXPECT_GT(words / 30, 200) << "batches are far from full";
}

// A resumed run would take another batch, because the memory is another one now, and go another way.
TEST_F(Training, AResumedRunKeepsTheBatchThatWasFound) {
  ParsedOptions parsed = options();
  parsed.options.out_dir = path("out").string();
  parsed.options.mini_batch_fit = true;
  parsed.options.workspace = 69;
  parsed.options.num_train_steps = 2;
  const auto batch = [&](const std::string& output) {
    const std::size_t begin = output.find(" steps an epoch of ");
    return begin == std::string::npos ? 0 : std::stoi(output.substr(begin + 19));
  };
  const std::string first = run(2, parsed);
  ddl::test::expect_parts(first, {"--mini_batch_fit: --batch_size=", "69 MB a rank"});
  EXPECT_GT(batch(first), 2);
  EXPECT_LT(batch(first), 240) << "the whole text tests nothing";
  parsed.options.num_train_steps = 4;
  parsed.options.workspace = 100;
  parsed.options.batch_size = 3;
  const std::string second = run(2, parsed);
  EXPECT_EQ(batch(second), batch(first));
  EXPECT_EQ(second.find("--batch_size"), std::string::npos) << second;
  parsed.options.mini_batch_fit = false;
  parsed.options.num_train_steps = 6;
  EXPECT_EQ(batch(run(2, parsed)), 6);
}

// A sentence's noise would depend on the rank that reads it, or on when the run was resumed.
TEST_F(Training, NoiseIsTheSameOnSeveralRanksAndAfterAResume) {
  ParsedOptions parsed = options();
  parsed.options.word_dropout = 0.1;
  parsed.options.subword_sampling = 0.5;
  parsed.options.output_dropout = 0.2;
  parsed.options.variational_dropout = true;
  parsed.options.ema_decay = 0.9;
  parsed.options.num_train_steps = 40;
  parsed.options.num_keep_ckpts = 0;
  parsed.options.steps_per_eval = 10;
  parsed.options.out_dir = path("whole").string();
  const auto one = log_of(1, parsed, 16);
  ASSERT_EQ(one.size(), 40U);
  EXPECT_LT(one.back().loss, one.front().loss);
  parsed.options.out_dir.clear();
  expect_same_losses(log_of(2, parsed, 16), one);

  parsed.options.out_dir = path("resumed").string();
  fs::create_directory(path("resumed"));
  fs::copy(path("whole") / "step-0000000020", path("resumed") / "step-0000000020",
           fs::copy_options::recursive);
  log_of(1, parsed, 16);
  expect_same_tensors(path("resumed") / "step-0000000040", path("whole") / "step-0000000040");
}

struct TrainedModel {
  const char* name;
  void (*change)(Options& options);
};

/// Every unit, encoder, attention and architecture at least once.
class TrainingOfModel : public Training, public testing::WithParamInterface<TrainedModel> {};

// A model would train to something else on several ranks, or after a resume, or could not translate.
TEST_P(TrainingOfModel, IsTheSameOnSeveralRanksAndAfterAResume) {
  ParsedOptions parsed = options();
  parsed.options.attention = AttentionKind::none;
  parsed.options.share_vocab = false;
  parsed.options.num_units = 12;
  parsed.options.steps_per_eval = 6;
  parsed.options.num_keep_ckpts = 0;
  GetParam().change(parsed.options);
  const auto one = log_of(1, parsed, 12);
  EXPECT_LT(one.back().loss, one.front().loss);
  parsed.options.out_dir = path("whole").string();
  const auto two = log_of(2, parsed, 12);
  expect_same_losses(two, one);

  fs::create_directory(path("resumed"));
  fs::copy(path("whole") / "step-0000000006", path("resumed") / "step-0000000006",
           fs::copy_options::recursive);
  parsed.options.out_dir = path("resumed").string();
  parsed.options.beam_width = 3;
  parsed.options.infer_mode = InferMode::beam_search;
  parsed.options.batch_size = 6;
  const std::string output = run(2, parsed);
  EXPECT_NE(output.find(parsed.options.language_model ? "dev ppl" : "dev BLEU"), std::string::npos) << output;
  expect_same_tensors(path("resumed") / "step-0000000012", path("whole") / "step-0000000012");
}

/// Settings of an optimiser, and with `sharded`, each rank updates its part. Tensors' norms are then of all
/// ranks' parts, and one rank's run has them whole.
template <OptimizerKind kind, bool sharded>
void use_optimizer(Options& o) {
  o.optimizer = kind;
  o.sharded_update = sharded;
  o.attention = AttentionKind::scaled_luong;
  o.decay_scheme = DecayScheme::poly;
  o.learning_rate = kind == OptimizerKind::adamw ? 0.005 : 0.02;
  o.weight_decay = kind == OptimizerKind::adam ? 0 : 0.01;
  if (kind == OptimizerKind::sgd || kind == OptimizerKind::momentum) {
    o.learning_rate = 0.2;
    o.larc_eta = 0.05;
    o.nesterov = true;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, TrainingOfModel,
    testing::Values(TrainedModel{"SgdLarcSharded", use_optimizer<OptimizerKind::sgd, true>},
                    TrainedModel{"NesterovLarc", use_optimizer<OptimizerKind::momentum, false>},
                    TrainedModel{"NesterovLarcSharded", use_optimizer<OptimizerKind::momentum, true>},
                    TrainedModel{"AdamW", use_optimizer<OptimizerKind::adamw, false>},
                    TrainedModel{"AdamWSharded", use_optimizer<OptimizerKind::adamw, true>},
                    TrainedModel{"Lamb", use_optimizer<OptimizerKind::lamb, false>},
                    TrainedModel{"LambSharded", use_optimizer<OptimizerKind::lamb, true>},
                    TrainedModel{"NovoGrad", use_optimizer<OptimizerKind::novograd, false>},
                    TrainedModel{"NovoGradSharded", use_optimizer<OptimizerKind::novograd, true>}),
    [](const auto& test) { return test.param.name; });

/// The resumed run starts at step 6: in phase 1, at phase 2's beginning, or in it.
template <int steps>
void use_phases(Options& o) {
  o.phase1_steps = steps;
  o.phase1_max_len = 30;
}

INSTANTIATE_TEST_SUITE_P(Phases, TrainingOfModel,
                         testing::Values(TrainedModel{"ResumedInPhase1", use_phases<9>},
                                         TrainedModel{"ResumedBetween", use_phases<6>},
                                         TrainedModel{"ResumedInPhase2", use_phases<3>}),
                         [](const auto& test) { return test.param.name; });

std::size_t bucket_bytes(const fs::path& checkpoint) {
  const auto state = nlohmann::json::parse(std::ifstream(checkpoint / "state.json"));
  return state.at("reducer").at("bucket_bytes");
}

// The optimiser would update the parts of other buckets than those that are reduced.
TEST_F(Training, PartsOfASharedOutUpdateAreThoseOfTheRestoredBuckets) {
  ParsedOptions parsed = options();
  parsed.options.num_units = 64;
  parsed.options.sharded_update = true;
  parsed.options.steps_per_eval = 6;
  const fs::path middle = "step-0000000006", last = "step-0000000012";
  const auto run_in = [&](const std::string& name, const std::vector<std::string>& hosts) {
    parsed.options.out_dir = path(name).string();
    run(2, parsed, hosts);
  };
  run_in("whole", {"a", "a"});
  run_in("elsewhere", {"a", "b"});
  ASSERT_NE(bucket_bytes(path("elsewhere") / last), bucket_bytes(path("whole") / last));
  fs::remove_all(path("elsewhere"));
  fs::create_directory(path("elsewhere"));
  fs::copy(path("whole") / middle, path("elsewhere") / middle, fs::copy_options::recursive);
  run_in("elsewhere", {"a", "b"});
  expect_same_tensors(path("elsewhere") / last, path("whole") / last);
}

// Long sentences would be in the first phase, or the second one would not see all of them.
TEST_F(Training, PhaseOneHasTheShortPairsAlone) {
  ParsedOptions parsed = options();
  parsed.options.num_train_steps = 30;
  parsed.options.phase1_steps = 10;
  parsed.options.phase1_max_len = 30;
  parsed.options.phase1_batch_size = 20;
  parsed.options.batch_size = 4;
  parsed.options.log_jsonl = path("log").string();
  const std::string output = run(2, parsed);
  EXPECT_NE(output.find("phase 1: 10 steps with the "), std::string::npos) << output;
  EXPECT_NE(output.find("step 30 phase 2 lr"), std::string::npos) << output;
  std::ifstream file(path("log"));
  double most_in_phase1 = 0, most_in_phase2 = 0;
  std::int64_t step = 0;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    if (!json.contains("loss")) continue;  // scores
    ++step;
    EXPECT_EQ(json.at("phase"), step <= 10 ? 1 : 2) << "step " << step;
    // Target words count </s>, too.
    double& most = step <= 10 ? most_in_phase1 : most_in_phase2;
    most = std::max<double>(most, json.at("words"));
  }
  EXPECT_EQ(step, 30);
  EXPECT_LE(most_in_phase1, 40 * (30 + 31));
  EXPECT_GT(most_in_phase1, 8 * (50 + 51)) << "batches are not larger";
  EXPECT_GT(most_in_phase2, 8 * (30 + 31)) << "no long sentence came";

  parsed.options.phase1_max_len = 1;
  const std::string none = error_of_run(2, parsed, ddl::ErrorCode::invalid_argument);
  EXPECT_NE(none.find("--phase1_max_len=1"), std::string::npos) << none;
}

// Phase 2 would start in the middle of an epoch after a rollback into phase 1.
TEST_F(Training, ARunThatWentBackToPhaseOneHasAllOfPhaseTwo) {
  const auto losses_from = [&](bool go_back) {
    std::vector<double> losses;
    ddl::run_in_process(
        1,
        [&](ddl::Context& context) {
          Options o = options().options;
          o.phase1_steps = 3;
          o.phase1_max_len = 30;
          const ParallelText text = number_corpus(CorpusSplit::train, 200, 3);
          const Vocabulary vocabulary = Vocabulary::train(text.target, 60);
          const Dataset dataset = encode(text, vocabulary, vocabulary, 30, 30);
          Phases phases(context, o, dataset);
          ddl::ShardedBatch share;
          const std::string start = phases.state(0);
          if (go_back) {
            for (std::uint64_t done = 0; done < 7; ++done) phases.next(done, share);
            phases.restore(0, start);
          }
          for (std::uint64_t done = 0; done < 12; ++done) {
            phases.next(done, share);
            EXPECT_EQ(share.step, done);
            for (const std::size_t sample : share.samples) losses.push_back(static_cast<double>(sample));
          }
        },
        quiet());
    return losses;
  };
  EXPECT_EQ(losses_from(true), losses_from(false));
}

INSTANTIATE_TEST_SUITE_P(Models, TrainingOfModel,
                         testing::Values(TrainedModel{"Gru",
                                                      [](Options& o) {
                                                        o.unit_type = UnitType::gru;
                                                        o.attention = AttentionKind::luong;
                                                      }},
                                         TrainedModel{"LayerNormLstm",
                                                      [](Options& o) {
                                                        o.unit_type = UnitType::layer_norm_lstm;
                                                        o.attention = AttentionKind::bahdanau;
                                                        // Adam takes steps by gradients that are roundings.
                                                        o.optimizer = OptimizerKind::sgd;
                                                        o.learning_rate = 0.5;
                                                      }},
                                         TrainedModel{"NasUnequalDepths",
                                                      [](Options& o) {
                                                        o.unit_type = UnitType::nas;
                                                        o.attention = AttentionKind::normed_bahdanau;
                                                        o.num_decoder_layers = 3;
                                                        o.pass_hidden_state = false;
                                                      }},
                                         TrainedModel{"Gnmt",
                                                      [](Options& o) {
                                                        o.encoder_type = EncoderType::gnmt;
                                                        o.num_layers = 3;
                                                        o.residual = true;
                                                        o.attention = AttentionKind::normed_bahdanau;
                                                        o.attention_architecture =
                                                            AttentionArchitecture::gnmt;
                                                      }},
                                         TrainedModel{"Mixed",
                                                      [](Options& o) {
                                                        o.attention = AttentionKind::scaled_luong;
                                                        o.dtype = Dtype::mixed;
                                                      }},
                                         TrainedModel{"MixedBackoffTied",
                                                      [](Options& o) {
                                                        o.unit_type = UnitType::gru;
                                                        o.tie_output = true;
                                                        o.micro_batch_size = 4;
                                                        o.dtype = Dtype::mixed;
                                                        o.loss_scaling = LossScaling::backoff;
                                                        o.loss_scale = 1024;
                                                        o.loss_scale_window = 4;
                                                      }},
                                         TrainedModel{"MixedLogMaxNas",
                                                      [](Options& o) {
                                                        o.unit_type = UnitType::nas;
                                                        o.attention = AttentionKind::normed_bahdanau;
                                                        o.dtype = Dtype::mixed;
                                                        o.loss_scaling = LossScaling::log_max;
                                                      }},
                                         TrainedModel{"MixedLogMaxSharded",
                                                      [](Options& o) {
                                                        o.sharded_update = true;
                                                        o.dtype = Dtype::mixed;
                                                        o.loss_scaling = LossScaling::log_max;
                                                      }},
                                         TrainedModel{"GnmtV2OfGrus",
                                                      [](Options& o) {
                                                        o.unit_type = UnitType::gru;
                                                        o.encoder_type = EncoderType::gnmt;
                                                        o.num_layers = 3;
                                                        o.attention = AttentionKind::scaled_luong;
                                                        o.attention_architecture =
                                                            AttentionArchitecture::gnmt_v2;
                                                      }},
                                         TrainedModel{"TiedAndSharedResidual",
                                                      [](Options& o) {
                                                        o.encoder_type = EncoderType::uni;
                                                        o.num_layers = 3;
                                                        o.residual = true;
                                                        o.share_vocab = true;
                                                        o.tie_output = true;
                                                        o.micro_batch_size = 4;
                                                      }},
                                         TrainedModel{"LanguageModel",
                                                      [](Options& o) {
                                                        o.language_model = true;
                                                        o.num_decoder_layers = 3;
                                                      }},
                                         TrainedModel{"Tied",
                                                      [](Options& o) {
                                                        o.attention = AttentionKind::luong;
                                                        o.tie_output = true;
                                                      }},
                                         TrainedModel{"NvidiaGnmt",
                                                      [](Options& o) {
                                                        o.encoder_type = EncoderType::gnmt;
                                                        o.num_layers = 3;
                                                        o.attention = AttentionKind::normed_bahdanau;
                                                        o.attention_architecture =
                                                            AttentionArchitecture::gnmt_v2;
                                                        o.feed_context = false;
                                                        o.output_bias = true;
                                                      }},
                                         TrainedModel{"FourSizes",
                                                      [](Options& o) {
                                                        o.attention = AttentionKind::luong;
                                                        o.src_embed_size = 8;
                                                        o.tgt_embed_size = 10;
                                                        o.attention_units = 14;
                                                      }},
                                         TrainedModel{"AttentionThatIsNoOutput",
                                                      [](Options& o) {
                                                        o.attention = AttentionKind::bahdanau;
                                                        o.output_attention = false;
                                                        o.attention_units = 7;
                                                        o.tgt_embed_size = 9;
                                                      }},
                                         TrainedModel{"SampledSoftmax",
                                                      [](Options& o) {
                                                        o.attention = AttentionKind::luong;
                                                        o.num_sampled_softmax = 60;
                                                        o.learning_rate = 0.02;
                                                        o.label_smoothing = 0;
                                                        o.micro_batch_size = 4;
                                                      }},
                                         TrainedModel{"SampledSoftmaxTied",
                                                      [](Options& o) {
                                                        o.share_vocab = true;
                                                        o.tie_output = true;
                                                        o.output_bias = true;
                                                        o.num_sampled_softmax = 60;
                                                        o.learning_rate = 0.02;
                                                        o.label_smoothing = 0;
                                                      }}),
                         [](const auto& test) { return test.param.name; });

// A run could not be finished with the loss that it is scored by, or be made faster.
TEST_F(Training, SampledSoftmaxMayBeSwitchedOnAndOff) {
  ParsedOptions parsed = options();
  parsed.options.label_smoothing = 0;
  parsed.options.num_sampled_softmax = 121;
  const std::string message = error_of_run(2, parsed, ddl::ErrorCode::invalid_argument);
  EXPECT_NE(message.find("--num_sampled_softmax=121: the target's vocabulary has 120 words"),
            std::string::npos)
      << message;
  parsed.options.out_dir = path("out").string();
  for (const auto& [steps, sampled] : {std::pair{4, 20}, std::pair{8, 0}, std::pair{12, 30}}) {
    parsed.options.num_train_steps = steps;
    parsed.options.num_sampled_softmax = sampled;
    const auto log = log_of(2, parsed, 16);
    EXPECT_EQ(log.back().step, steps);
    EXPECT_LT(log.back().loss, std::log(120.0));
  }
}

// A run could not be made faster, or be finished where there is no fast bf16.
TEST_F(Training, PrecisionMayBeSwitched) {
  ParsedOptions parsed = options();
  parsed.options.out_dir = path("out").string();
  double before = 10;
  for (const auto& [steps, dtype] :
       {std::pair{4, Dtype::f32}, std::pair{8, Dtype::mixed}, std::pair{12, Dtype::f32}}) {
    parsed.options.num_train_steps = steps;
    parsed.options.dtype = dtype;
    const auto log = log_of(2, parsed, 16);
    EXPECT_EQ(log.back().step, steps);
    EXPECT_LT(log.back().loss, before);
    before = log.back().loss;
  }
}

// A run that goes on would do so with this program's defaults, and on another text.
TEST_F(Training, ResumedRunTakesWhatWasSaved) {
  ParsedOptions parsed = options();
  parsed.options.num_train_steps = 10;
  parsed.options.out_dir = path("out").string();
  parsed.options.log_jsonl = path("log").string();
  ParsedOptions whole = parsed;
  whole.options.num_train_steps = 20;
  whole.options.decay_scheme = DecayScheme::luong5;
  whole.options.out_dir = path("whole").string();
  whole.options.log_jsonl = path("whole.jsonl").string();
  parsed.options.decay_scheme = DecayScheme::luong5;
  run(2, whole);

  run(2, parsed);
  ParsedOptions flags;  // --out_dir --log_jsonl --num_train_steps=20
  flags.options.out_dir = parsed.options.out_dir;
  flags.options.log_jsonl = parsed.options.log_jsonl;
  flags.options.num_train_steps = 20;
  flags.options.threads = 1;
  flags.explicitly_set = {"out_dir", "log_jsonl", "num_train_steps", "threads"};
  const std::string output = run(2, flags);
  EXPECT_NE(output.find("--num_train_steps: 20, the checkpoint had 10\n"), std::string::npos) << output;
  EXPECT_EQ(output.find("the checkpoint had"), output.rfind("the checkpoint had")) << output;
  const auto found = read_log(path("log"));
  const auto expected = read_log(path("whole.jsonl"));
  ASSERT_EQ(found.size(), 20u);
  for (std::size_t i = 10; i < 20; ++i) {
    EXPECT_EQ(found[i].words, expected[i].words);
    EXPECT_EQ(found[i].learning_rate, expected[i].learning_rate);
  }

  // Without a flag, the end of training is what was saved, too.
  ParsedOptions nothing = flags;
  nothing.options.num_train_steps = 50;
  nothing.explicitly_set = {"out_dir", "threads"};
  EXPECT_NE(run(2, nothing).find("trained to step 20"), std::string::npos);
}

struct Keeper {
  std::set<std::string> steps;
  double score;
};

/// What is kept by a metric, and the score in the newest state.
Keeper kept(const fs::path& out, const std::string& keeper, const char* newest) {
  const RunState state = RunState::from_json(ddl::test::contents(out / newest / "state.json"));
  return {names_in(out / keeper), state.best.at(keeper).score};
}

// A resumed run would take its first score for the best, and remove the better model.
TEST_F(Training, BestCheckpointsOutliveAResumedRunThatIsNotBetter) {
  ParsedOptions parsed = options();
  parsed.options.decay_scheme = DecayScheme::none;
  parsed.options.learning_rate = 1e-9;  // the model does not change
  parsed.options.num_train_steps = 4;
  parsed.options.num_keep_ckpts = 1;
  parsed.options.metrics = metrics_of("rouge,word_accuracy");
  parsed.options.out_dir = path("out").string();
  const std::string output = run(2, parsed);
  EXPECT_NE(output.find("eval step 4: dev ROUGE-L = "), std::string::npos) << output;
  EXPECT_NE(output.find("eval step 4: dev word accuracy = "), std::string::npos) << output;
  EXPECT_NE(output.find("the best so far by rouge and word_accuracy"), std::string::npos) << output;

  for (const int steps : {6, 8}) {
    parsed.options.num_train_steps = steps;
    run(2, parsed);
  }
  EXPECT_EQ(names_in(path("out")), (std::set<std::string>{"best_rouge", "best_word_accuracy", "log.jsonl",
                                                          "options.json", "step-0000000008", "train.data"}));
  for (const char* keeper : {"best_rouge", "best_word_accuracy"}) {
    EXPECT_EQ(kept(path("out"), keeper, "step-0000000008").steps, std::set<std::string>{"step-0000000004"});
    EXPECT_GE(kept(path("out"), keeper, "step-0000000008").score, 0);
  }
  // A metric that is new has no best score yet.
  parsed.options.num_train_steps = 9;
  parsed.options.metrics = metrics_of("chrf,rouge");
  run(3, parsed);
  EXPECT_EQ(kept(path("out"), "best_chrf", "step-0000000009").steps,
            std::set<std::string>{"step-0000000009"});
  EXPECT_EQ(kept(path("out"), "best_rouge", "step-0000000009").steps,
            std::set<std::string>{"step-0000000004"});
}

// What is kept would be lost if a run is killed before it is brought there.
TEST_F(Training, ABestCheckpointIsKeptAfterAKill) {
  ParsedOptions parsed = options();
  parsed.options.num_train_steps = 4;
  parsed.options.out_dir = path("out").string();
  run(2, parsed);
  fs::remove_all(path("out") / "best_bleu");
  parsed.options.num_train_steps = 5;
  parsed.options.dev_prefix = "";
  run(2, parsed);
  EXPECT_EQ(kept(path("out"), "best_bleu", "step-0000000005").steps,
            std::set<std::string>{"step-0000000004"});
}

/// Of a checkpoint's model, whose vocabulary is shared.
ParameterLayout layout_of(const fs::path& checkpoint) {
  const RunState state = RunState::from_json(ddl::test::contents(checkpoint / "state.json"));
  const auto vocabulary = Vocabulary::deserialize(ddl::test::contents(checkpoint / "source.vocabulary"));
  return parameter_layout(
      model_shape(options_from_json(state.options_json), vocabulary.size(), vocabulary.size()));
}

/// The parameters in a checkpoint: the model's, or those of another group.
std::vector<float> model_of(const fs::path& checkpoint, const ParameterLayout& layout,
                            const std::string& of = "model") {
  std::vector<float> values(static_cast<std::size_t>(layout.extent));
  ddl::run_in_process(
      1,
      [&](ddl::Context& context) {
        ddl::CheckpointGroup group;
        for (const ParameterSpec& p : layout.parameters) {
          const auto part = std::span(values).subspan(static_cast<std::size_t>(p.offset),
                                                      static_cast<std::size_t>(p.size()));
          group.whole.push_back({p.name, ddl::DataType::f32, {p.rows, p.cols}, std::as_writable_bytes(part)});
        }
        ddl::SavedCheckpoint::open(context, checkpoint).restore(of, group);
      },
      quiet());
  return values;
}

// The averaged model would not be the mean, or averaging would change the training.
TEST_F(Training, AveragesAreTheMeansOfCheckpoints) {
  ParsedOptions parsed = options();
  parsed.options.steps_per_eval = 3;
  parsed.options.steps_per_external_eval = 6;
  parsed.options.num_keep_ckpts = 3;
  parsed.options.out_dir = path("without").string();
  run(2, parsed);
  parsed.options.avg_ckpts = true;
  parsed.options.out_dir = path("out").string();
  const std::string output = run(2, parsed);
  EXPECT_NE(output.find("no average yet: 2 of 3 checkpoints"), std::string::npos) << output;
  EXPECT_NE(output.find("average of 3 checkpoints, step 12: dev BLEU"), std::string::npos) << output;
  expect_same_tensors(path("out") / "step-0000000012", path("without") / "step-0000000012");

  const ParameterLayout layout = layout_of(path("out") / "step-0000000012");
  std::vector<double> sums(static_cast<std::size_t>(layout.extent));
  for (const char* step : {"step-0000000006", "step-0000000009", "step-0000000012"}) {
    const std::vector<float> values = model_of(path("out") / step, layout);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
  }
  for (const char* directory : {"avg_checkpoints", "avg_best_bleu"}) {
    EXPECT_EQ(names_in(path("out") / directory), std::set<std::string>{"step-0000000012"});
    const std::vector<float> mean = model_of(path("out") / directory / "step-0000000012", layout);
    for (std::size_t i = 0; i < sums.size(); ++i) ASSERT_NEAR(mean[i], sums[i] / 3, 1e-6) << i;
  }
}

// Scores and translations would be of other parameters than the moving average, or it of other updates.
TEST_F(Training, MovingAverageIsOfAllUpdates) {
  ParsedOptions parsed = options();
  parsed.options.ema_decay = 0.4;  // above (1 + t) / (10 + t) in the first 5 steps
  parsed.options.num_keep_ckpts = 0;
  parsed.options.steps_per_eval = 1;
  parsed.options.out_dir = path("without").string();
  ParsedOptions without = parsed;
  without.options.ema_decay = 0;
  run(2, without);
  parsed.options.out_dir = path("out").string();
  run(2, parsed);
  const auto step_directory = [&](int step) { return path("out") / fmt::format("step-{:010}", step); };
  EXPECT_TRUE(ddl::test::contents(step_directory(12) / "model.safetensors") ==
              ddl::test::contents(path("without") / "step-0000000012" / "model.safetensors"))
      << "the average changes the training";

  const ParameterLayout layout = layout_of(step_directory(1));
  std::vector<float> expected(static_cast<std::size_t>(layout.extent));
  ddl::run_in_process(1, [&](ddl::Context&) {
    // The first parameters, which no checkpoint has, have a share in it.
    const auto backend = make_cpu_backend(1);
    ParameterSet first(*backend, layout);
    const Options& o = parsed.options;
    first.initialize(*backend, o.init_op, o.init_weight, o.random_seed);
    backend->download(first.values(), std::span<float>(expected));
  });
  for (int step = 1; step <= 12; ++step) {
    const std::vector<float> values = model_of(step_directory(step), layout);
    const double decay = std::min(0.4, (1.0 + step) / (10.0 + step));
    for (std::size_t i = 0; i < values.size(); ++i)
      expected[i] = static_cast<float>(decay * expected[i] + (1 - decay) * values[i]);
  }
  const std::vector<float> average = model_of(step_directory(12), layout, "average");
  for (std::size_t i = 0; i < average.size(); ++i) ASSERT_NEAR(average[i], expected[i], 1e-6) << i;

  ddl::run_in_process(1, [&](ddl::Context& context) {
    const auto backend = make_cpu_backend(1);
    ParameterSet parameters(*backend, layout);
    const SavedRun saved(context, ddl::SavedCheckpoint::open(context, step_directory(12)));
    saved.restore_for_translating(*backend, parameters);
    std::vector<float> restored(average.size());
    backend->download(parameters.values(), std::span<float>(restored));
    EXPECT_EQ(restored, average);
  });
}

// Given vectors would be trained, or forgotten by a checkpoint, or differ between ranks.
TEST_F(Training, GivenVectorsStayAndSpecialWordsAreTrained) {
  ParsedOptions parsed = options();
  Options& o = parsed.options;
  const std::vector<std::string> words = {"a", "b", "c", "d", "e"};
  std::vector<std::string> sentences, vectors = {"10 3"};
  for (std::size_t i = 0; i < 60; ++i) sentences.push_back(words[i % 5] + " " + words[i % 3] + " unknown");
  for (std::size_t w = 0; w < words.size(); ++w)
    vectors.push_back(fmt::format("{} 0.5 -{} 0.25", words[w], w));
  for (const char* side : {"en", "de"}) {
    for (const char* text : {"train", "dev"}) write_lines(std::string(text) + "." + side, sentences);
    write_lines(std::string("vocab.") + side, words);
    write_lines(std::string("vectors.") + side, vectors);
  }
  o.vocab_prefix = path("vocab").string();
  o.embed_prefix = path("vectors").string();
  o.share_vocab = false;
  o.num_train_steps = 6;
  o.steps_per_eval = 3;
  const auto one = log_of(1, parsed, 12);
  o.out_dir = path("out").string();
  expect_same_losses(log_of(3, parsed, 12), one);

  const fs::path saved = path("out") / "step-0000000006";
  const Options kept =
      options_from_json(RunState::from_json(ddl::test::contents(saved / "state.json")).options_json);
  const ParameterLayout layout = parameter_layout(model_shape(kept, 8, 8));
  const std::vector<float> model = model_of(saved, layout);
  for (const char* name : {"embedding/encoder", "embedding/decoder"}) {
    const ParameterSpec& table = layout.parameters[layout.index_of(name)];
    ASSERT_EQ(table.cols, 3);
    const auto at = [&](std::int64_t id, std::int64_t c) {
      return model[static_cast<std::size_t>(table.offset + id * 3 + c)];
    };
    for (std::int64_t id = 3; id < 8; ++id) {
      EXPECT_EQ(at(id, 0), 0.5f);
      EXPECT_EQ(at(id, 1), static_cast<float>(3 - id));
    }
    EXPECT_GT(std::abs(at(0, 0)) + std::abs(at(0, 1)), 1e-3) << name << ": the unknown word is not trained";
  }

  fs::create_directory(path("resumed"));
  fs::copy(path("out") / "step-0000000003", path("resumed") / "step-0000000003", fs::copy_options::recursive);
  ParsedOptions resumed;
  resumed.options.out_dir = path("resumed").string();
  resumed.options.threads = 1;
  const std::string output = run(3, resumed);
  EXPECT_NE(output.find("going on from step 3\n"), std::string::npos) << output;
  expect_same_tensors(path("resumed") / "step-0000000006", saved);

  o.src_embed_size = 3;
  o.out_dir.clear();
  EXPECT_NE(error_of_run(2, parsed, ddl::ErrorCode::invalid_argument).find("--embed_prefix"),
            std::string::npos);
  o.src_embed_size = 0;
  o.embed_prefix = path("nothing").string();
  EXPECT_NE(error_of_run(2, parsed, ddl::ErrorCode::io).find("nothing.de"), std::string::npos);
}

// --max_train would train on other sentences than the first ones.
TEST_F(Training, MaxTrainTakesTheFirstSentences) {
  ParsedOptions parsed = options();
  const auto all = log_of(2, parsed, 16);
  parsed.options.max_train = 100;
  const auto first = log_of(2, parsed, 16);
  parsed.options.max_train = 0;
  write_corpus("train", 100, CorpusSplit::train);
  expect_same_bits(log_of(2, parsed, 16), first);
  EXPECT_NE(first.back().loss, all.back().loss);
}

// After a resume with another number of ranks, sentences would be repeated or skipped.
TEST_F(Training, ResumesOnAnotherNumberOfRanks) {
  ParsedOptions parsed = options();
  parsed.options.num_train_steps = 20;
  parsed.options.steps_per_eval = 10;
  parsed.options.out_dir = path("out").string();
  const auto whole = log_of(2, parsed, 16);
  ASSERT_EQ(whole.size(), 20u);
  fs::remove_all(path("out") / "step-0000000020");
  expect_same_losses(log_of(4, parsed, 16), whole);
}

// A run would silently continue with other sentences than remained, or could not continue on fewer machines.
TEST_F(Training, ResumesWithAnotherGlobalBatchButNotInAnotherOrder) {
  ParsedOptions parsed = options();
  parsed.options.num_train_steps = 5;
  parsed.options.out_dir = path("out").string();
  log_of(2, parsed, 16);
  parsed.options.num_train_steps = 8;
  const auto log = log_of(3, parsed, 21);
  ASSERT_EQ(log.size(), 8u);
  EXPECT_EQ(log.back().step, 8);

  parsed.options.num_train_steps = 9;
  parsed.options.random_seed = 2;
  const std::string other_seed = error_of_run(2, parsed, ddl::ErrorCode::mismatch);
  EXPECT_NE(other_seed.find("seed 1, here 2"), std::string::npos) << other_seed;
  EXPECT_NE(other_seed.find("--random_seed"), std::string::npos) << other_seed;
}

// A run would resume from a checkpoint of an older version, which does not say which sentences remained.
TEST(RunState, WithoutASamplerIsForTranslatingOnly) {
  RunState old;
  old.step = 3;
  old.options_json = to_json(Options());
  const RunState read = RunState::from_json(old.to_json());
  EXPECT_EQ(read.step, 3u);
  const std::string text =
      ddl::test::message_of(ddl::ErrorCode::unsupported, [&] { check_resumable(read, "out/step-3"); });
  for (const char* part : {"out/step-3", "older version", "--out_dir"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " not in: " << text;
  }
}

// A checkpoint of an older version would not load, or lose its best score.
TEST(RunState, OfAnOlderVersionIsRead) {
  const RunState read =
      RunState::from_json(R"({"step": 7, "best_bleu": 12.5, "options": {"num_units": 16}})");
  EXPECT_EQ(read.step, 7u);
  EXPECT_EQ(read.best.at("best_bleu").score, 12.5);
  EXPECT_EQ(read.rollbacks, 0);
  EXPECT_TRUE(RunState::from_json(R"({"step": 7, "best_bleu": -1, "options": {}})").best.empty());
  RunState state;
  state.step = 9;
  state.best = {{"best_rouge", {33.25, 8}}, {"avg_best_rouge", {34, 9}}};
  state.rollbacks = 2;
  state.rnn = "cudnn";
  state.options_json = "{}";
  const RunState back = RunState::from_json(state.to_json());
  EXPECT_EQ(back.best.at("best_rouge").score, 33.25);
  EXPECT_EQ(back.best.at("avg_best_rouge").step, 9u);
  EXPECT_EQ(back.rollbacks, 2);
  EXPECT_EQ(back.rnn, "cudnn");
}

// Ranks on hosts with their own disks would leave files there, or all ranks would write the same file.
TEST_F(Training, RankZeroAloneWritesAndKeepsTheLastCheckpoints) {
  ParsedOptions parsed = options();
  parsed.options.steps_per_eval = 2;
  parsed.options.num_keep_ckpts = 3;
  ddl::InProcessOptions settings = quiet();
  settings.hosts = {"a", "b", "c"};
  ddl::run_in_process(
      3,
      [&](ddl::Context& context) {
        ParsedOptions own = parsed;
        own.options.out_dir = path("out" + std::to_string(context.rank())).string();
        own.options.log_jsonl = path("log" + std::to_string(context.rank())).string();
        std::ostringstream out;
        train(context, own, out);
      },
      settings);
  EXPECT_TRUE(fs::exists(path("log0")));
  for (const char* name : {"log1", "log2"}) EXPECT_FALSE(fs::exists(path(name))) << name;
  for (const char* name : {"out1", "out2"})
    EXPECT_EQ(names_in(path(name)), std::set<std::string>{"train.data"}) << "each host has its own";
  EXPECT_EQ(names_in(path("out0")),
            (std::set<std::string>{"best_bleu", "options.json", "step-0000000008", "step-0000000010",
                                   "step-0000000012", "train.data"}));
  const Options saved = options_from_json(ddl::test::contents(path("out0") / "options.json"));
  EXPECT_EQ(saved.num_units, 16);
  EXPECT_EQ(saved.train_prefix, parsed.options.train_prefix);
}

// Hours would be spent on a diverged model, or some ranks would wait for those that have given up.
TEST_F(Training, DivergenceEndsAllRanksWithOneError) {
  ParsedOptions parsed = options();
  parsed.options.optimizer = OptimizerKind::sgd;
  parsed.options.decay_scheme = DecayScheme::none;
  parsed.options.learning_rate = 1e30;
  parsed.options.num_train_steps = 100;
  parsed.options.steps_per_eval = 1;
  parsed.options.out_dir = path("out").string();
  std::mutex mutex;
  std::vector<std::string> messages;
  ddl::run_in_process(
      3,
      [&](ddl::Context& context) {
        std::ostringstream out;
        try {
          train(context, parsed, out);
        } catch (const ddl::Error& error) {
          const std::lock_guard lock(mutex);
          EXPECT_TRUE(error.agreed());
          EXPECT_EQ(error.code(), ddl::ErrorCode::invalid_argument);
          messages.emplace_back(error.what());
        }
      },
      quiet());
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[1], messages[0]);
  EXPECT_EQ(messages[2], messages[0]);
  EXPECT_NE(messages[0].find("training diverged: at step"), std::string::npos) << messages[0];
  EXPECT_NE(messages[0].find("--learning_rate"), std::string::npos) << messages[0];
}

/// A run that diverges at its learning rate.
void make_diverge(Options& options) {
  options.optimizer = OptimizerKind::sgd;
  options.decay_scheme = DecayScheme::none;
  options.dropout = 0;
  options.learning_rate = 12;
  options.num_train_steps = 30;
  options.steps_per_eval = 1;
  options.num_keep_ckpts = 0;
  options.drift_check_steps = 1;
  options.dev_prefix = "";
}

// A run would end hours before anybody looks at it, or go on from a model that is lost.
TEST_F(Training, RollsBackToAGoodCheckpointAtHalfTheRate) {
  ParsedOptions parsed = options();
  make_diverge(parsed.options);
  parsed.options.on_divergence = OnDivergence::rollback;
  parsed.options.out_dir = path("out").string();
  parsed.options.log_jsonl = path("log").string();
  const std::string output = run(2, parsed);
  EXPECT_NE(output.find("training diverged: at step "), std::string::npos) << output;
  EXPECT_NE(output.find("with 0.5 of the learning rate"), std::string::npos) << output;
  const std::size_t loss = output.find("the loss is ") + 12;
  EXPECT_GT(std::stod(output.substr(loss)), std::log(1e20)) << "a finite loss can be lost, too";
  EXPECT_TRUE(std::isfinite(std::stod(output.substr(loss))));
  const auto log = read_log(path("log"));
  ASSERT_EQ(log.size(), 30u);
  for (std::size_t i = 0; i < log.size(); ++i) EXPECT_EQ(log[i].step, i + 1) << "the log must have no gaps";
  const RunState state =
      RunState::from_json(ddl::test::contents(path("out") / "step-0000000030" / "state.json"));
  ASSERT_GT(state.rollbacks, 0);
  EXPECT_DOUBLE_EQ(log.back().learning_rate, 12 * std::pow(0.5, state.rollbacks));

  // A run that is killed after the last rollback goes on at the same rate.
  const std::size_t last = output.rfind("going back to step ");
  const std::string good = fmt::format("step-{:010}", std::stoi(output.substr(last + 19)));
  const fs::path whole = path("whole");
  fs::rename(path("out"), whole);
  fs::create_directories(path("out"));
  fs::copy(whole / good, path("out") / good, fs::copy_options::recursive);
  run(2, parsed);
  expect_same_tensors(path("out") / "step-0000000030", whole / "step-0000000030");
}

TEST_F(Training, RollsBackALimitedNumberOfTimes) {
  ParsedOptions parsed = options();
  make_diverge(parsed.options);
  parsed.options.on_divergence = OnDivergence::rollback;
  parsed.options.out_dir = path("none").string();
  parsed.options.learning_rate = 1e30;
  const std::string none = error_of_run(2, parsed, ddl::ErrorCode::invalid_argument);
  EXPECT_NE(none.find("no good checkpoint in " + path("none").string()), std::string::npos) << none;

  parsed.options.out_dir = path("out").string();
  parsed.options.learning_rate = 0.1;
  parsed.options.num_train_steps = 3;
  run(2, parsed);
  parsed.options.learning_rate = 1e30;
  parsed.options.num_train_steps = 30;
  parsed.options.steps_per_eval = 100;
  const std::string often = error_of_run(2, parsed, ddl::ErrorCode::invalid_argument);
  EXPECT_NE(often.find("training diverged: at step 5"), std::string::npos) << often;
  EXPECT_NE(often.find("5 times before"), std::string::npos) << often;
  EXPECT_TRUE(fs::exists(path("out") / "step-0000000003"));
}

// BLEU of text in pieces would be far too low, and the wrong checkpoint would be the best. The model learns
// four sentences by heart, so its BLEU is known: the number is sacrebleu 2's, for the joined lines.
TEST_F(Training, BleuIsOfJoinedText) {
  const auto in_pieces = [](SubwordOption kind, const std::string& line) {
    std::string split = kind == SubwordOption::spm ? "\xE2\x96\x81" : "";
    for (const char c : line) {
      if (c == '|') {
        split += kind == SubwordOption::spm ? " " : kind == SubwordOption::bpe ? "@@ " : "";
      } else {
        split += c;
        if (c == ' ' && kind == SubwordOption::spm) split += "\xE2\x96\x81";
      }
    }
    return split;
  };
  for (const SubwordOption option : {SubwordOption::none, SubwordOption::bpe, SubwordOption::spm}) {
    SCOPED_TRACE(name_of(option));
    std::set<std::string> words;
    const auto write = [&](const std::string& name, const std::vector<std::string>& lines) {
      std::vector<std::string> split;
      for (const std::string& line : lines) {
        split.push_back(in_pieces(option, line));
        std::istringstream stream(split.back());
        for (std::string word; stream >> word;) words.insert(word);
      }
      write_lines(name, split);
    };
    const std::vector<std::string> sources = {"one", "two", "three", "four"};
    for (const char* name : {"train.en", "dev.en"}) write_lines(name, sources);
    write("train.de", {"he eats an ap|ple in the old garden", "she likes one ap|ple , not two pears",
                       "an ap|ple a day keeps the doctor away", "we sell pears ."});
    write("dev.de", {"he eats an ap|ple in the new garden", "she likes the ap|ple , not two pears",
                     "an ap|ple a day keeps the doctor away", "we sell an ap|ple ."});
    write_lines("vocab.en", sources);
    write_lines("vocab.de", {words.begin(), words.end()});
    ParsedOptions parsed = options();
    parsed.options.vocab_prefix = path("vocab").string();
    parsed.options.subword_option = option;
    parsed.options.share_vocab = false;
    parsed.options.dropout = 0;
    parsed.options.label_smoothing = 0;
    parsed.options.num_units = 32;
    parsed.options.learning_rate = 0.02;
    parsed.options.num_train_steps = 150;
    parsed.options.tgt_max_len_infer = 12;
    const std::string output = run(1, parsed);
    EXPECT_NE(output.find("dev BLEU = 69.69"), std::string::npos) << output;
  }
}

// The dev perplexity would be that of the beginnings of sentences.
TEST_F(Training, DevPerplexityIsOfWholeSentences) {
  const auto perplexity = [&](int train_max, int infer_max) {
    ParsedOptions parsed = options();
    parsed.options.num_train_steps = 1;
    parsed.options.learning_rate = 1e-9;  // the model does not change
    parsed.options.tgt_max_len = train_max;
    parsed.options.tgt_max_len_infer = infer_max;
    const std::string output = run(2, parsed);
    return output.substr(output.find("dev ppl"), 14);
  };
  const std::string whole = perplexity(50, 0);
  EXPECT_EQ(perplexity(2, 0), whole);
  EXPECT_NE(perplexity(50, 2), whole);
}

// A user who gives no --out_dir would get unexpected files.
TEST_F(Training, WithoutOutDirNothingIsWritten) {
  ParsedOptions parsed = options();
  const auto before = names_in(path("."));
  const std::string output = run(1, parsed);
  EXPECT_EQ(names_in(path(".")), before);
  EXPECT_NE(output.find("trained to step 12"), std::string::npos) << output;
  EXPECT_EQ(output.find("saved"), std::string::npos) << output;
}

// Ranks would reach a time limit at different steps, and then wait for each other.
TEST_F(Training, TimeLimitEndsAllRanksAfterTheSameStep) {
  ParsedOptions parsed = options();
  parsed.options.num_train_steps = 1'000'000;
  parsed.options.max_train_seconds = 1e-9;  // exceeded before the second step
  parsed.options.out_dir = path("out").string();
  run(3, parsed);
  const std::set<std::string> names = names_in(path("out"));
  EXPECT_EQ(names.size(), 5u);
  EXPECT_EQ(names.count("log.jsonl"), 1u);
  EXPECT_EQ(names.count("best_bleu"), 1u);
  EXPECT_EQ(names.count("step-0000000001") + names.count("step-0000000002"), 1u);
}

/// The steps of an epoch, as a run's header says them.
std::int64_t steps_of_epoch(const std::string& output) {
  const std::size_t end = output.find(" steps an epoch");
  return std::stoll(output.substr(output.rfind(' ', end - 1) + 1));
}

// Training by epochs would end elsewhere, or with another schedule, than by the same number of steps, also
// after a resume.
TEST_F(Training, EpochsAreSteps) {
  ParsedOptions parsed = options();
  parsed.options.num_train_steps = *Length::parse("1.5e");
  parsed.options.warmup_steps = *Length::parse("0.25e");
  parsed.options.steps_per_eval = *Length::parse("0.5e");
  parsed.options.out_dir = path("epochs").string();
  parsed.options.log_jsonl = path("epochs.jsonl").string();
  parsed.options.num_keep_ckpts = 0;
  const std::int64_t epoch = steps_of_epoch(run(2, parsed));
  const auto log = read_log(path("epochs.jsonl"));
  const auto half = static_cast<std::int64_t>(std::llround(0.5 * static_cast<double>(epoch)));
  EXPECT_EQ(std::ssize(log), std::llround(1.5 * static_cast<double>(epoch)));
  const fs::path middle = fmt::format("step-{:010}", half);
  EXPECT_TRUE(fs::exists(path("epochs") / middle));

  ParsedOptions steps = parsed;
  steps.options.num_train_steps = std::ssize(log);
  steps.options.warmup_steps = std::llround(0.25 * static_cast<double>(epoch));
  steps.options.out_dir.clear();
  steps.options.log_jsonl = path("steps.jsonl").string();
  run(2, steps);
  expect_same_bits(read_log(path("steps.jsonl")), log);

  fs::create_directory(path("resumed"));
  fs::copy(path("epochs") / middle, path("resumed") / middle, fs::copy_options::recursive);
  fs::copy_file(path("epochs.jsonl"), path("resumed.jsonl"));
  parsed.options.out_dir = path("resumed").string();
  parsed.options.log_jsonl = path("resumed.jsonl").string();
  run(2, parsed);
  expect_same_bits(read_log(path("resumed.jsonl")), log);
}

// A run that goes on with another number of ranks would train on more or fewer epochs than asked for.
TEST_F(Training, EpochsCountPassesWhateverTheGlobalBatch) {
  ParsedOptions parsed = options();
  parsed.options.decay_scheme = DecayScheme::none;
  parsed.options.num_train_steps = *Length::parse("1e");
  parsed.options.out_dir = path("out").string();
  const std::int64_t with_one = steps_of_epoch(run(1, parsed));
  parsed.options.num_train_steps = *Length::parse("3e");
  const std::string output = run(2, parsed);
  const std::int64_t with_two = steps_of_epoch(output);
  ASSERT_LT(with_two, with_one);
  EXPECT_NE(output.find(fmt::format("trained to step {}", with_one + 2 * with_two)), std::string::npos)
      << output;
  const std::string again = run(2, parsed);
  EXPECT_NE(again.find(fmt::format("trained to step {}", with_one + 2 * with_two)), std::string::npos)
      << again;
}

// A run by words would end at another step after a resume, or too early.
TEST_F(Training, EndsWithTheStepThatReachesItsWords) {
  ParsedOptions parsed = options();
  parsed.options.decay_scheme = DecayScheme::none;
  parsed.options.num_train_steps = *Length::parse("4kw");
  parsed.options.out_dir = path("out").string();
  parsed.options.log_jsonl = path("whole.jsonl").string();
  run(2, parsed);
  const auto whole = read_log(path("whole.jsonl"));
  ASSERT_GT(whole.size(), 4u);
  const auto words_after = [&](std::size_t steps) {
    const std::string state =
        ddl::test::contents(path("out") / fmt::format("step-{:010}", steps) / "state.json");
    return nlohmann::json::parse(state).at("target_words").get<double>();
  };
  EXPECT_GE(words_after(whole.size()), 4000);

  ParsedOptions first = parsed;
  first.options.num_train_steps = std::ssize(whole) - 1;
  first.options.out_dir = path("resumed").string();
  first.options.log_jsonl = path("resumed.jsonl").string();
  run(2, first);
  fs::copy(path("resumed"), path("out"), fs::copy_options::recursive | fs::copy_options::skip_existing);
  EXPECT_LT(words_after(whole.size() - 1), 4000);
  parsed.options.out_dir = first.options.out_dir;
  parsed.options.log_jsonl = first.options.log_jsonl;
  run(2, parsed);
  expect_same_bits(read_log(path("resumed.jsonl")), whole);
}

// A run of two hours would start anew to count with every command.
TEST_F(Training, TimeCountsWhatWasTrainedBefore) {
  ParsedOptions parsed = options();
  parsed.options.decay_scheme = DecayScheme::none;
  parsed.options.num_train_steps = *Length::parse("0.01s");
  parsed.options.out_dir = path("out").string();
  parsed.options.log_jsonl = path("log").string();
  run(2, parsed);
  const std::size_t steps = read_log(path("log")).size();
  ASSERT_GT(steps, 0u);
  run(2, parsed);
  EXPECT_EQ(read_log(path("log")).size(), steps);
}

// Training would go on for hours without becoming better, or a resumed run would stop elsewhere.
TEST_F(Training, StopsEarlyAtTheSameStepAfterAResume) {
  for (const char* metric : {"dev_ppl", "bleu"}) {
    SCOPED_TRACE(metric);
    const fs::path out = path(std::string("out-") + metric);
    ParsedOptions parsed = options();
    parsed.options.learning_rate = 0;  // nothing becomes better
    parsed.options.num_train_steps = 30;
    parsed.options.steps_per_eval = 3;
    parsed.options.steps_per_external_eval = 3;
    parsed.options.early_stopping = metric;
    parsed.options.patience = 2;
    parsed.options.num_keep_ckpts = 0;
    parsed.options.out_dir = out.string();
    const std::string output = run(2, parsed);
    const std::string reason =
        fmt::format("early stopping: 2 evaluations since step 3 gave no better {}", metric);
    EXPECT_NE(output.find(reason), std::string::npos) << output;
    EXPECT_NE(output.find("trained to step 9 "), std::string::npos) << output;
    EXPECT_TRUE(fs::exists(out / "step-0000000009"));
    EXPECT_EQ(fs::exists(out / "best_dev_ppl" / "step-0000000003"), metric == std::string("dev_ppl"));

    const std::string again = run(2, parsed);
    EXPECT_NE(again.find("trained to step 9 "), std::string::npos) << again;
    EXPECT_NE(again.find(reason), std::string::npos) << again;
    fs::remove_all(out / "step-0000000009");
    const std::string resumed = run(2, parsed);
    EXPECT_NE(resumed.find("going on from step 6\n"), std::string::npos) << resumed;
    EXPECT_NE(resumed.find("trained to step 9 "), std::string::npos) << resumed;
    parsed.options.patience = 3;
    EXPECT_NE(run(2, parsed).find("trained to step 12 "), std::string::npos);
  }
}

// A run would stop although it still becomes better, or by the score of another metric.
TEST(EarlyStopping, CountsFromTheBestScore) {
  Options options;
  options.early_stopping = "ter";
  options.patience = 2;
  EarlyStopping early;
  EXPECT_EQ(early.reason(options), "");
  const auto stops = [&](double score, std::uint64_t step) {
    early.note("ter", score, step);
    return !early.reason(options).empty();
  };
  EXPECT_FALSE(stops(80, 1));
  EXPECT_FALSE(stops(85, 2));
  EXPECT_FALSE(stops(70, 3)) << "of ter, less is better";
  EXPECT_FALSE(stops(std::nan(""), 4));
  EXPECT_TRUE(stops(75, 5));
  EXPECT_EQ(early.step, 3u);
  options.early_stopping = "bleu";
  EXPECT_EQ(early.reason(options), "");
  early.note("bleu", std::nan(""), 6);
  early.note("bleu", 1, 7);
  early.note("bleu", 2, 8);
  EXPECT_EQ(early.evaluations, 0) << "of bleu, more is better";
}

// A run's scores would be missing from its log, or a resumed run would log some of them twice.
TEST_F(Training, LogsHaveStepsAndScores) {
  ParsedOptions parsed = options();
  parsed.options.test_prefix = parsed.options.dev_prefix;
  parsed.options.steps_per_eval = 4;
  parsed.options.steps_per_external_eval = 8;
  parsed.options.metrics = metrics_of("bleu,ter");
  parsed.options.out_dir = path("out").string();
  parsed.options.log_csv = path("log.csv").string();
  parsed.options.log_dir = path("events").string();
  run(2, parsed);
  const auto steps_with = [&](const char* name) {
    std::ifstream file(path("out") / "log.jsonl");
    std::vector<std::int64_t> steps;
    for (std::string line; std::getline(file, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json.contains(name)) steps.push_back(json.at("step"));
    }
    return steps;
  };
  EXPECT_EQ(steps_with("loss").size(), 12u);
  EXPECT_EQ(steps_with("dev_ppl"), (std::vector<std::int64_t>{4, 8, 12}));
  EXPECT_EQ(steps_with("dev_ter"), (std::vector<std::int64_t>{8, 12}));
  EXPECT_EQ(steps_with("test_bleu"), (std::vector<std::int64_t>{12}));
  const std::string csv = ddl::test::contents(path("log.csv"));
  EXPECT_TRUE(csv.starts_with("step,phase,loss,ppl,lr,")) << csv;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 12 + 3 + 2 + 1);
  EXPECT_EQ(names_in(path("events")).size(), 1u);

  fs::remove_all(path("out") / "step-0000000012");
  run(2, parsed);
  EXPECT_EQ(steps_with("loss").size(), 12u);
  EXPECT_EQ(steps_with("dev_ppl"), (std::vector<std::int64_t>{4, 8, 12}));
  EXPECT_EQ(steps_with("dev_ter"), (std::vector<std::int64_t>{8, 12}));
  const std::string resumed = ddl::test::contents(path("log.csv"));
  EXPECT_EQ(std::count(resumed.begin(), resumed.end(), '\n'), 1 + 12 + 3 + 2 + 1);
  EXPECT_EQ(names_in(path("events")).size(), 2u);
}

// Hosts with different files would train a wrong model unnoticed.
TEST_F(Training, OtherDataOnARankIsAnError) {
  write_corpus("other", 200, CorpusSplit::train);
  std::atomic<int> errors = 0;
  ddl::run_in_process(
      3,
      [&](ddl::Context& context) {
        ParsedOptions own = options();
        if (context.rank() == 1) own.options.train_prefix = path("other").string();
        std::ostringstream out;
        try {
          train(context, own, out);
        } catch (const ddl::Error& error) {
          EXPECT_EQ(error.code(), ddl::ErrorCode::mismatch) << error.what();
          EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
          ++errors;
        }
      },
      quiet());
  EXPECT_EQ(errors, 3);
}

}  // namespace
}  // namespace nmt
