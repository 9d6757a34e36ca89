#include "nmt_example/options/options.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <vector>

#include "ddl/error.hpp"
#include "nmt_example/commands/command.hpp"
#include "nmt_example/options/flag_table.hpp"
#include "nmt_example/options/nearest_name.hpp"
#include "nmt_example/options/presets.hpp"
#include "nmt_example/options/tensorflow_nmt_flags.hpp"
#include "support/temporary_directory.hpp"
#include "support/thrown_error.hpp"

namespace {

using nmt::Options;

nmt::ParsedOptions parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "ddl_nmt");
  return nmt::parse_options(static_cast<int>(arguments.size()), arguments.data());
}

/// Parses the arguments with --describe, which needs no data.
Options described(std::vector<const char*> arguments) {
  arguments.push_back("--describe");
  return parse(std::move(arguments)).options;
}

/// The error that `arguments` cause, as its code and message; empty if there is none.
std::string failure(std::vector<const char*> arguments) {
  try {
    parse(std::move(arguments));
  } catch (const ddl::Error& error) {
    return fmt::format("{} {}", static_cast<int>(error.code()), error.what());
  }
  return "";
}

std::string invalid(std::vector<const char*> arguments) {
  const std::string code = fmt::format("{} ", static_cast<int>(ddl::ErrorCode::invalid_argument));
  const std::string text = failure(std::move(arguments));
  return text.starts_with(code) ? text.substr(code.size()) : fmt::format("another outcome: {}", text);
}

std::string unsupported(std::vector<const char*> arguments) {
  const std::string code = fmt::format("{} ", static_cast<int>(ddl::ErrorCode::unsupported));
  const std::string text = failure(std::move(arguments));
  return text.starts_with(code) ? text.substr(code.size()) : fmt::format("another outcome: {}", text);
}

using ddl::test::expect_parts;

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text, std::string name = "hparams") : name_(std::move(name)) {
    directory_.write(name_, text);
  }
  [[nodiscard]] std::string flag(const std::string& name = "hparams_path") const {
    return fmt::format("--{}={}", name, directory_.file(name_));
  }

 private:
  std::string name_;
  ddl::test::TemporaryDirectory directory_;
};

// Command lines copied from tensorflow/nmt's documentation would not work.
TEST(Options, TensorflowNmtCommandLine) {
  const Options o =
      parse({"--attention=scaled_luong", "--src=vi", "--tgt=en", "--vocab_prefix=/tmp/vocab",
             "--train_prefix=/tmp/train", "--dev_prefix", "/tmp/tst2012", "--test_prefix=/tmp/tst2013",
             "--out_dir", "/tmp/model", "--num_train_steps=12000", "--steps_per_stats=100", "--num_layers",
             "2", "--num_units=128", "--dropout=0.2", "--metrics=bleu", "--num_gpus=1"})
          .options;
  EXPECT_EQ(o.attention, nmt::AttentionKind::scaled_luong);
  EXPECT_EQ(o.dev_prefix, "/tmp/tst2012");
  EXPECT_EQ(o.out_dir, "/tmp/model");
  EXPECT_EQ(o.num_train_steps, 12000);
  EXPECT_EQ(o.num_units, 128);
  EXPECT_DOUBLE_EQ(o.dropout, 0.2);
}

TEST(Options, SwitchesTakeAValueOrNone) {
  EXPECT_TRUE(described({"--share_vocab"}).share_vocab);
  EXPECT_TRUE(described({"--share_vocab=true"}).share_vocab);
  EXPECT_TRUE(described({"--share_vocab", "True"}).share_vocab);
  EXPECT_FALSE(described({"--share_vocab=false"}).share_vocab);
  EXPECT_FALSE(described({"--share_vocab", "--share_vocab", "false"}).share_vocab);
  EXPECT_EQ(described({"--share_vocab", "--num_units", "7"}).num_units, 7);
  expect_parts(invalid({"--share_vocab=yes"}), {"--share_vocab=yes", "true or false"});
}

TEST(Options, EmptyAndNegativeValuesAreValues) {
  EXPECT_EQ(described({"--preset=multi30k", "--attention="}).attention, nmt::AttentionKind::none);
  EXPECT_EQ(described({"--preset=multi30k", "--attention", ""}).attention, nmt::AttentionKind::none);
  EXPECT_DOUBLE_EQ(described({"--forget_bias", "-1.5"}).forget_bias, -1.5);
}

TEST(Options, LastOfARepeatedFlagCounts) {
  EXPECT_EQ(described({"--num_units=8", "--num_units=16"}).num_units, 16);
}

// A misspelt flag would train another model for hours.
TEST(Options, UnknownFlagNamesTheNearest) {
  expect_parts(invalid({"--num_unit=3"}), {"unknown flag --num_unit;", "--num_units?"});
  expect_parts(invalid({"--batchsize", "3"}), {"--batch_size?"});
  expect_parts(invalid({"--atention=luong"}), {"--attention?"});
  expect_parts(invalid({"--hlep"}), {"did you mean --help?"});
}

TEST(Options, StrayWordsAndMissingValues) {
  expect_parts(invalid({"train"}), {"unexpected argument 'train'"});
  expect_parts(invalid({"--describe", "--num_units"}), {"num_units", "missing"});
  expect_parts(invalid({"--num_units", "--describe"}), {"num_units", "missing"});
}

TEST(Options, ValuesOfTheWrongForm) {
  for (const char* argument : {"--num_units=abc", "--num_units=", "--num_units=3x", "--num_units=2.5",
                               "--num_units=99999999999", "--random_seed=-1", "--learning_rate=1e999",
                               "--learning_rate=nan", "--dropout=inf", "--num_units= 3"}) {
    expect_parts(invalid({argument, "--describe"}), {argument, "expected"});
  }
}

TEST(Options, ValuesOutOfRange) {
  for (const char* argument : {"--batch_size=0",
                               "--batch_size=-1",
                               "--num_units=0",
                               "--num_layers=0",
                               "--dropout=1",
                               "--dropout=-0.1",
                               "--beam_width=-1",
                               "--vocab_size=3",
                               "--num_train_steps=-1",
                               "--steps_per_stats=0",
                               "--warmup_steps=-1",
                               "--max_gradient_norm=0",
                               "--adam_beta1=1",
                               "--init_weight=0",
                               "--threads=-1",
                               "--num_buckets=0",
                               "--builtin_corpus=-1",
                               "--label_smoothing=1",
                               "--infer_batch_size=0",
                               "--max_train_seconds=-1",
                               "--drift_check_steps=-1",
                               "--momentum=1",
                               "--weight_decay=-1",
                               "--larc_eta=-1",
                               "--decay_steps=0",
                               "--decay_factor=0",
                               "--decay_power=0",
                               "--end_learning_rate=-1",
                               "--phase1_steps=-1",
                               "--loss_scale=0.5",
                               "--loss_scale_window=0",
                               "--phase1_max_len=-1",
                               "--phase1_batch_size=-1"}) {
    expect_parts(invalid({argument, "--describe"}), {argument, "must be"});
  }
  EXPECT_EQ(described({"--num_train_steps=0"}).num_train_steps, 0);
  EXPECT_DOUBLE_EQ(described({"--dropout=0"}).dropout, 0);
}

// A run would be a thousand times too short, or a checkpoint would not remember the unit.
TEST(Options, LengthsHaveUnits) {
  using enum nmt::LengthUnit;
  struct Case {
    const char* given;
    nmt::LengthUnit unit;
    double amount;
    const char* text;
  };
  for (const Case& c :
       {Case{"500", steps, 500, "500"}, Case{"500u", steps, 500, "500"}, Case{"1.5ku", steps, 1500, "1500"},
        Case{"2Mu", steps, 2e6, "2000000"}, Case{"5e", epochs, 5, "5e"}, Case{"0.25e", epochs, 0.25, "0.25e"},
        Case{"2h", seconds, 7200, "2h"}, Case{"0.5h", seconds, 1800, "30m"}, Case{"90s", seconds, 90, "90s"},
        Case{"50Mw", words, 5e7, "50Mw"}, Case{"1500kw", words, 1.5e6, "1500kw"},
        Case{"7w", words, 7, "7w"}}) {
    const auto length = nmt::Length::parse(c.given);
    ASSERT_TRUE(length) << c.given;
    EXPECT_EQ(length->unit(), c.unit) << c.given;
    EXPECT_DOUBLE_EQ(length->amount(), c.amount) << c.given;
    EXPECT_EQ(length->text(), c.text);
    Options options;
    options.num_train_steps = *length;
    EXPECT_EQ(nmt::options_from_json(nmt::to_json(options)).num_train_steps.text(), c.text);
  }
  for (const char* text : {"", "u", "5k", "5 e", "e5", "1.5u", "1e3", "0x10", "2H", "5ee", "infs", "1e30e"}) {
    EXPECT_FALSE(nmt::Length::parse(text)) << text;
  }
  const TemporaryFile file(R"({"num_train_steps": "5e", "steps_per_eval": 7, "warmup_steps": "1ku"})");
  const Options o = described({file.flag().c_str()});
  EXPECT_EQ(o.num_train_steps.text(), "5e");
  EXPECT_EQ(o.steps_per_eval, 7);
  EXPECT_EQ(o.warmup_steps, 1000);
}

// A run would wait for a score that is never made.
TEST(Options, EarlyStoppingNeedsItsScore) {
  expect_parts(invalid({"--describe", "--early_stopping=ter"}), {"--early_stopping=ter", "dev_ppl", "bleu"});
  expect_parts(invalid({"--describe", "--early_stopping=bleu", "--preset=word_lm"}), {"dev_ppl with"});
  expect_parts(invalid({"--train_prefix=p", "--src=a", "--tgt=b", "--early_stopping=dev_ppl"}),
               {"--early_stopping=dev_ppl", "--dev_prefix"});
  EXPECT_NO_THROW(described({"--early_stopping=ter", "--metrics=bleu,ter"}));
  EXPECT_NO_THROW(described({"--early_stopping=dev_ppl", "--preset=word_lm"}));
}

// A unit that means nothing for a flag would be taken for steps.
TEST(Options, UnitsThatMakeNoSense) {
  expect_parts(invalid({"--steps_per_eval=2h", "--describe"}), {"--steps_per_eval=2h", "epochs, as 5e"});
  expect_parts(invalid({"--phase1_steps=5e", "--describe"}), {"--phase1_steps=5e", "10ku"});
  expect_parts(invalid({"--num_train_steps=5x", "--describe"}), {"--num_train_steps=5x", "50Mw"});
  expect_parts(invalid({"--num_train_steps=-5e", "--describe"}), {"--num_train_steps=-5e", "at least 0"});
  expect_parts(invalid({"--decay_boundaries=1e,3h", "--describe"}), {"--decay_boundaries=3h"});
  expect_parts(invalid({"--describe", "--decay_scheme=cosine", "--num_train_steps=2h"}),
               {"--num_train_steps=2h", "--decay_scheme=cosine", "--max_train_seconds"});
  EXPECT_NO_THROW(described({"--decay_scheme=cosine", "--num_train_steps=2e", "--warmup_steps=1e"}));
}

TEST(Options, ChoicesAreListed) {
  expect_parts(invalid({"--encoder_type=gnmt", "--num_layers=1"}), {"--num_layers=1", "at least 2"});
  expect_parts(invalid({"--encoder_type=tri"}), {"--encoder_type=tri", "uni | bi | gnmt"});
  expect_parts(invalid({"--attention_architecture=gnmt"}), {"--attention_architecture=gnmt", "--attention"});
  expect_parts(invalid({"--language_model", "--attention=luong"}), {"--language_model", "--attention=luong"});
  expect_parts(invalid({"--unit_type=rnn"}), {"--unit_type=rnn", "lstm | gru | layer_norm_lstm | nas"});
  expect_parts(invalid({"--attention=dot"}), {"\"\" | luong | scaled_luong | bahdanau | normed_bahdanau"});
  expect_parts(invalid({"--optimizer=rmsprop"}), {"sgd | momentum | adam | adamw | lamb | novograd"});
  expect_parts(invalid({"--decay_scheme=luong"}),
               {"luong5 | luong10 | luong234 | cosine | exp | poly | inverse_sqrt | piecewise | noam"});
  expect_parts(invalid({"--lr_schedule_unit=epochs"}), {"updates | samples"});
  expect_parts(invalid({"--infer_mode=nucleus", "--infer"}), {"greedy | sample | beam_search"});
  expect_parts(invalid({"--on_divergence=hope"}), {"stop | rollback"});
}

TEST(Options, CombinationsThatCannotWork) {
  expect_parts(invalid({"--describe", "--encoder_type=bi", "--num_layers=3"}), {"--num_layers=3", "even"});
  expect_parts(invalid({"--describe", "--encoder_type=bi", "--num_encoder_layers=1", "--attention=luong"}),
               {"--num_encoder_layers=1", "even"});
  expect_parts(invalid({"--describe", "--num_encoder_layers=4"}), {"4 encoder and 2 decoder layers"});
  expect_parts(invalid({"--describe", "--pass_hidden_state=false"}), {"needs --attention"});
  expect_parts(invalid({"--describe", "--num_encoder_layers=4", "--attention=luong", "--pass_hidden_state"}),
               {"--pass_hidden_state=true"});
  expect_parts(invalid({"--describe", "--decay_scheme=cosine", "--warmup_steps=9", "--num_train_steps=9"}),
               {"--warmup_steps=9"});
  EXPECT_NO_THROW(described(
      {"--decay_scheme=cosine", "--warmup_steps=9", "--num_train_steps=9", "--lr_schedule_unit=samples"}));
  expect_parts(invalid({"--describe", "--decay_scheme=poly", "--warmup_steps=9", "--num_train_steps=9"}),
               {"--warmup_steps=9", "poly"});
  expect_parts(invalid({"--describe", "--optimizer=adam", "--weight_decay=0.1"}), {"--optimizer=adamw"});
  expect_parts(invalid({"--describe", "--optimizer=lamb", "--larc_eta=0.1"}), {"sgd or momentum"});
  expect_parts(invalid({"--describe", "--decay_scheme=exp"}), {"--decay_factor"});
  expect_parts(invalid({"--describe", "--decay_scheme=noam"}), {"--warmup_steps"});
  expect_parts(invalid({"--describe", "--decay_scheme=poly", "--end_learning_rate=3"}),
               {"--end_learning_rate=3", "--learning_rate=1"});
  for (const auto& [boundaries, rates, problem] : {std::array{"", "", "found 0 and 0"},
                                                   {"5,9", "1", "found 2 and 1"},
                                                   {"0", "1", "above 0"},
                                                   {"9,9", "1,2", "ascending"},
                                                   {"9", "-1", "--decay_rates=-1"}}) {
    const std::string first = std::string("--decay_boundaries=") + boundaries;
    const std::string second = std::string("--decay_rates=") + rates;
    expect_parts(invalid({"--describe", "--decay_scheme=piecewise", first.c_str(), second.c_str()}),
                 {problem});
  }
  expect_parts(invalid({"--describe", "--decay_boundaries=5,"}), {"after the last comma"});
  expect_parts(invalid({"--describe", "--decay_rates=0.5,x"}), {"--decay_rates=x", "a number"});
  expect_parts(invalid({"--describe", "--loss_scaling=backoff"}),
               {"--loss_scaling=backoff", "--dtype=mixed"});
  expect_parts(invalid({"--describe", "--dtype=tf32"}), {"--dtype=tf32", "--device=cuda"});
  expect_parts(invalid({"--describe", "--dtype=mixed", "--mixed_type=f16"}), {"--mixed_type=f16", "bf16"});
  expect_parts(invalid({"--describe", "--profile", "--device=cuda"}), {"--profile", "--device=cuda"});
  expect_parts(invalid({"--describe", "--rnn=cudnn"}), {"--rnn=cudnn", "--device=cuda"});
  expect_parts(invalid({"--describe", "--step_graph"}), {"--step_graph", "--device=cuda"});
  const std::vector<const char*> recorded = {"--describe", "--device=cuda", "--step_graph"};
  expect_parts(invalid(recorded), {"--sparse_embeddings=false"});
  for (const char* const flag : {"--micro_batch_size=4", "--num_sampled_softmax=10", "--rnn=cudnn"}) {
    std::vector<const char*> arguments = recorded;
    arguments.insert(arguments.end(), {"--sparse_embeddings=false", flag});
    expect_parts(invalid(arguments), {"--step_graph", flag, "leave one out"});
  }
  expect_parts(invalid({"--describe", "--phase1_steps=5"}), {"--phase1_steps=5", "--phase1_max_len"});
  expect_parts(invalid({"--describe", "--infer_mode=beam_search"}), {"--beam_width"});
  expect_parts(invalid({"--describe", "--infer_mode=sample"}), {"--sampling_temperature"});
  expect_parts(invalid({"--describe", "--beam_width=2", "--sampling_temperature=1"}), {"choose one"});
  expect_parts(invalid({"--describe", "--num_translations_per_input=3"}), {"greedy search gives one"});
  expect_parts(invalid({"--describe", "--num_translations_per_input=3", "--beam_width=2"}),
               {"--beam_width=2"});
  expect_parts(invalid({"--describe", "--metrics=bleu,meteor"}), {"\"meteor\" is none", "word_accuracy"});
  expect_parts(invalid({"--describe", "--metrics=bleu,bleu"}), {"bleu is repeated"});
  expect_parts(invalid({"--describe", "--metrics="}), {"\"\" is none"});
  expect_parts(invalid({"--describe", "--sos=<go>"}), {"--vocab_prefix"});
  expect_parts(invalid({"--describe", "--vocab_prefix=v", "--sos=a b"}), {"must be one word"});
  expect_parts(invalid({"--describe", "--vocab_prefix=v", "--sos=x", "--eos=x"}), {"must differ"});
  expect_parts(invalid({"--describe", "--use_char_encode", "--share_vocab"}), {"--share_vocab"});
  expect_parts(invalid({"--describe", "--tie_output", "--attention=luong", "--attention_units=16"}),
               {"--tgt_embed_size=0", "--attention_units=16", "--tie_output"});
  EXPECT_EQ(described({"--tie_output", "--attention=luong", "--attention_units=16", "--tgt_embed_size=16"})
                .output_units(),
            16);
  expect_parts(invalid({"--describe", "--num_sampled_softmax=9", "--label_smoothing=0.1"}),
               {"--num_sampled_softmax=9", "--label_smoothing=0.1", "leave one out"});
  EXPECT_EQ(described({"--num_sampled_softmax=9"}).num_sampled_softmax, 9);
  expect_parts(invalid({"--describe", "--avg_ckpts"}), {"--avg_ckpts", "--out_dir"});
  expect_parts(invalid({"--describe", "--on_divergence=rollback"}), {"--out_dir"});
  expect_parts(invalid({"--infer"}), {"--ckpt"});
  expect_parts(invalid({"--describe", "--subword_option=bpe"}), {"--vocab_prefix"});
}

TEST(Options, MissingDataIsNamed) {
  expect_parts(invalid({}), {"--train_prefix", "--builtin_corpus", "--preset=quickstart"});
  expect_parts(invalid({"--train_prefix=p", "--tgt=de", "--dev_prefix=d"}), {"--src is missing"});
  expect_parts(invalid({"--train_prefix=p", "--src=en", "--dev_prefix=d"}), {"--tgt is missing"});
  expect_parts(invalid({"--builtin_corpus=9", "--train_prefix=p", "--src=en", "--tgt=de"}), {"choose one"});
  EXPECT_EQ(parse({"--builtin_corpus=9"}).options.builtin_corpus, 9);
}

// A tensorflow/nmt command would silently train another model than it names.
TEST(Options, TensorflowNmtFlagsThatAreNotSupported) {
  expect_parts(unsupported({"--source_reverse"}), {"--source_reverse=true", "--encoder_type=bi"});
  expect_parts(unsupported({"--num_workers=4"}), {"--num_workers=4", "mpirun -np N"});
  expect_parts(unsupported({"--jobid=1"}), {"--jobid=1", "mpirun -np N"});
  expect_parts(unsupported({"--num_embeddings_partitions=2"}), {"--sparse_embeddings", "leave the flag out"});
  expect_parts(unsupported({"--num_gpus=2"}), {"--num_gpus=2", "mpirun -np N", "--device=cuda"});
  EXPECT_NO_THROW(described({"--time_major", "--source_reverse=False", "--scope="}));
}

// A command would be refused for a flag without any influence, or a person would believe that it has some.
TEST(Options, FlagsWithoutInfluenceGetOneNotice) {
  const auto notices = [](std::vector<const char*> arguments) {
    arguments.push_back("--describe");
    return parse(std::move(arguments)).notices;
  };
  EXPECT_TRUE(
      notices({"--time_major=true", "--log_device_placement=false", "--num_intra_threads=0"}).empty());
  const auto found = notices({"--time_major=false", "--log_device_placement", "--num_inter_threads=4",
                              "--colocate_gradients_with_ops=False", "--scope=deen"});
  ASSERT_EQ(found.size(), 1U);
  expect_parts(found[0], {"--time_major=false", "--log_device_placement=true", "--num_inter_threads=4",
                          "--colocate_gradients_with_ops=False", "--scope=deen", "change nothing"});
}

// --num_gpus=1 would compute on the CPU without a word.
TEST(Options, AGpuThatIsNotUsedIsSaid) {
  const auto parsed = parse({"--num_gpus=1", "--describe"});
  ASSERT_EQ(parsed.notices.size(), 1U);
  expect_parts(parsed.notices[0], {"--num_gpus=1", "on the CPU", "--device=cuda"});
  EXPECT_TRUE(parse({"--num_gpus=1", "--device=cuda", "--describe"}).notices.empty());
  EXPECT_TRUE(parse({"--num_gpus=0", "--describe"}).notices.empty());
  expect_parts(invalid({"--num_gpus=0", "--device=cuda", "--describe"}), {"choose one"});
}

TEST(Options, NoNameIsInBothTables) {
  for (const nmt::TensorflowNmtFlag& flag : nmt::tensorflow_nmt_flags()) {
    EXPECT_EQ(nmt::find_flag(flag.name), nullptr) << flag.name;
    EXPECT_FALSE(flag.instead.empty()) << flag.name;
  }
}

TEST(Options, PrecedenceIsDefaultsPresetFileFlags) {
  const TemporaryFile file(
      R"({"num_units": 64, "learning_rate": 0.5, "share_vocab": false, "source_reverse": false})");
  const std::string flag = file.flag();
  const nmt::ParsedOptions parsed =
      parse({"--learning_rate=0.25", flag.c_str(), "--preset=multi30k", "--describe"});
  EXPECT_EQ(parsed.options.batch_size, 32);              // preset
  EXPECT_EQ(parsed.options.num_units, 64);               // file
  EXPECT_DOUBLE_EQ(parsed.options.learning_rate, 0.25);  // flag
  EXPECT_FALSE(parsed.options.share_vocab);
  EXPECT_EQ(parsed.options.num_keep_ckpts, 5);  // default
  const std::vector<std::string> expected = {"num_units",    "learning_rate", "share_vocab",
                                             "hparams_path", "preset",        "describe"};
  EXPECT_EQ(parsed.explicitly_set, expected);
}

TEST(Options, PresetMayStandInTheFile) {
  const TemporaryFile file(R"({"preset": "ddl_reference"})");
  EXPECT_EQ(described({file.flag().c_str()}).num_units, 1024);
  EXPECT_EQ(described({file.flag().c_str(), "--preset=multi30k"}).num_units, 256);
}

TEST(Options, BadHparamsFiles) {
  const TemporaryFile torn(R"({"num_units": )");
  const TemporaryFile array("[1]");
  const TemporaryFile unknown(R"({"num_unit": 3})");
  const TemporaryFile type(R"({"num_units": "64"})");
  const TemporaryFile unavailable(R"({"source_reverse": true})");
  expect_parts(failure({torn.flag().c_str()}), {"not JSON"});
  expect_parts(failure({array.flag().c_str()}), {"JSON object", "array"});
  expect_parts(invalid({unknown.flag().c_str()}), {"\"num_unit\"", "\"num_units\""});
  expect_parts(invalid({type.flag().c_str()}), {"\"num_units\"", "\"64\"", "32"});
  expect_parts(unsupported({unavailable.flag().c_str()}), {"--source_reverse=true"});
  expect_parts(failure({"--hparams_path=/nonexistent/file"}), {"/nonexistent/file", "No such file"});
}

// A typing error in a long file would have to be searched for.
TEST(Options, MistakesInAFileAreFoundByTheirLine) {
  const TemporaryFile unknown("{\n  \"src\": \"num_unit\",\n  \"num_unit\": 3\n}");
  const TemporaryFile choice("{\n\n  \"attention\": \"dot\"\n}");
  expect_parts(invalid({unknown.flag("config").c_str()}), {"/hparams:3: unknown option", "\"num_units\""});
  expect_parts(invalid({choice.flag("config").c_str()}), {"/hparams:3: --attention=dot", "scaled_luong"});
  const std::string same = choice.flag();
  expect_parts(invalid({choice.flag("config").c_str(), same.c_str()}), {"--config=", "--hparams_path="});
  expect_parts(failure({"--config=/nonexistent/file"}), {"--config=/nonexistent/file", "No such file"});
}

// A file written by hand would be read as other values than it says.
TEST(Options, YamlFilesSayTheSameAsJson) {
  const TemporaryFile file(R"(# The model.
num_units: 64
learning_rate: 5.0e-1   # a comment
share_vocab: true
use_char_encode: False
metrics: [bleu, ter]
inference_list:
  - 3
  - 1
num_train_steps: 5e
src: "7"
batch_size:
)");
  const TemporaryFile unknown("num_units: 3\nnum_layer: 2\n", "run.yaml");
  const TemporaryFile type("num_units: 3\nnum_layers: \"2\"\n", "run.yml");
  const TemporaryFile torn("num_units: [3\n", "run.yaml");
  const TemporaryFile no_mapping("dear diary\n");
#ifdef DDL_HAVE_YAML
  const Options o = described({file.flag("config").c_str(), "--preset=multi30k"});
  EXPECT_EQ(o.num_units, 64);
  EXPECT_DOUBLE_EQ(o.learning_rate, 0.5);
  EXPECT_TRUE(o.share_vocab);
  EXPECT_FALSE(o.use_char_encode);
  EXPECT_EQ(nmt::names_of(o.metrics), "bleu,ter");
  EXPECT_EQ(o.inference_list, "3,1");
  EXPECT_EQ(o.num_train_steps.text(), "5e");
  EXPECT_EQ(o.src, "7");
  EXPECT_EQ(o.batch_size, 32) << "no value must leave the preset's";
  expect_parts(invalid({unknown.flag("config").c_str()}), {"run.yaml:2:", "\"num_layer\"", "\"num_layers\""});
  expect_parts(invalid({type.flag("config").c_str()}), {"run.yml:2:", "\"num_layers\""});
  expect_parts(failure({torn.flag("config").c_str()}), {"run.yaml:", "not YAML"});
  expect_parts(failure({no_mapping.flag("config").c_str()}), {"mapping of options"});
#else
  expect_parts(unsupported({unknown.flag("config").c_str()}), {"run.yaml", "libyaml-cpp-dev", "JSON"});
#endif
}

// A run could not be repeated from the options that it printed.
TEST(Options, DumpedOptionsCanBeReadBack) {
  const Options first = parse({"--preset=multi30k", "--num_train_steps=5e", "--metrics=bleu,ter",
                               "--optimizer=adamw", "--beam_width=4", "--dump_config"})
                            .options;
  const TemporaryFile file(nmt::config_of(first));
  const Options again = described({file.flag("config").c_str()});
  for (const nmt::Flag& flag : nmt::all_flags()) {
    if (flag.group == nmt::FlagGroup::general) continue;
    EXPECT_EQ(nmt::value_text(flag, again), nmt::value_text(flag, first)) << flag.name;
  }
  EXPECT_EQ(nmt::config_of(first).find("override_loaded_hparams"), std::string::npos)
      << "it would be given, which changes what a resumed run takes from its checkpoint";
}

// tensorflow/nmt's own settings would not load. Flags take the place of models that are not available.
TEST(Options, StandardHparamsLoad) {
  const auto load = [](const std::string& name, std::vector<const char*> flags) {
    const std::string path = fmt::format("--hparams_path={}/hparams/{}.json", DDL_GOLDEN_DIR, name);
    flags.insert(flags.end(), {path.c_str(), "--vocab_prefix=v"});
    return described(std::move(flags));
  };
  const Options iwslt = load("iwslt15", {});
  EXPECT_EQ(iwslt.num_units, 512);
  EXPECT_EQ(nmt::names_of(iwslt.metrics), "bleu");
  EXPECT_EQ(iwslt.src_max_len_infer, 0);
  EXPECT_EQ(iwslt.infer_mode, nmt::InferMode::beam_search);
  EXPECT_EQ(load("wmt16", {"--attention=scaled_luong"}).num_train_steps, 340000);
  for (const char* name : {"wmt16_gnmt_4_layer", "wmt16_gnmt_8_layer"}) {
    const Options gnmt = load(name, {});
    EXPECT_EQ(gnmt.attention_architecture, nmt::AttentionArchitecture::gnmt_v2);
    EXPECT_EQ(gnmt.encoder_type, nmt::EncoderType::gnmt);
    EXPECT_TRUE(gnmt.residual);
    EXPECT_EQ(gnmt.num_encoder_layers, name[11] - '0');
    EXPECT_EQ(gnmt.length_penalty_weight, 1.0);
  }
}

TEST(Options, PresetsAreTensorflowNmtsFiles) {
  for (const auto& [name, file_name] : {std::pair("iwslt15", "iwslt15"), std::pair("wmt16", "wmt16"),
                                        std::pair("gnmt8", "wmt16_gnmt_8_layer")}) {
    SCOPED_TRACE(name);
    const std::string preset_flag = fmt::format("--preset={}", name);
    const std::string file_flag = fmt::format("--hparams_path={}/hparams/{}.json", DDL_GOLDEN_DIR, file_name);
    const Options preset = described({preset_flag.c_str(), "--vocab_prefix=v"});
    Options file = described({file_flag.c_str(), "--vocab_prefix=v"});
    file.num_layers = file.num_encoder_layers;
    file.num_encoder_layers = file.num_decoder_layers = 0;  // the same as num_layers
    for (const nmt::Flag& flag : nmt::all_flags()) {
      if (flag.group == nmt::FlagGroup::general) continue;
      EXPECT_EQ(nmt::value_text(flag, preset), nmt::value_text(flag, file)) << flag.name;
    }
  }
}

TEST(Options, ListsAndNullInHparamsFiles) {
  const TemporaryFile file(R"({"metrics": ["bleu", "rouge"], "batch_size": null, "inference_list": [3, 1]})");
  const Options o = described({file.flag().c_str(), "--preset=multi30k"});
  EXPECT_EQ(nmt::names_of(o.metrics), "bleu,rouge");
  EXPECT_EQ(o.batch_size, 32) << "null must leave the preset's";
  EXPECT_EQ(o.inference_list, "3,1");
  const TemporaryFile list(R"({"num_units": [3]})");
  const TemporaryFile nested(R"({"metrics": [["bleu"]]})");
  expect_parts(invalid({list.flag().c_str()}), {"\"num_units\"", "[3]"});
  expect_parts(invalid({nested.flag().c_str()}), {"\"metrics\""});
}

// A documented preset would end with an error.
TEST(Options, EveryPresetIsValid) {
  for (const nmt::Preset& preset : nmt::presets()) {
    Options options;
    ASSERT_NO_THROW(nmt::apply_preset(preset.name, options)) << preset.name;
    options.describe = true;
    if (options.beam_width > 0) options.infer_mode = nmt::InferMode::beam_search;  // as --preset means
    if (options.subword_option == nmt::SubwordOption::bpe) options.vocab_prefix = "vocab.bpe.32000";
    EXPECT_NO_THROW(nmt::validate(options)) << preset.name;
  }
  EXPECT_NO_THROW(parse({"--preset=quickstart"}));
  EXPECT_NO_THROW(parse({"--preset=benchmark"}));
  expect_parts(invalid({"--preset=quick"}), {"--preset=quick", "quickstart", "multi30k", "ddl_reference"});
}

TEST(Options, ReferencePresetIsTheArticlesModel) {
  const Options o = described({"--preset=ddl_reference"});
  EXPECT_EQ(o.num_layers, 4);
  EXPECT_EQ(o.num_units, 1024);
  EXPECT_EQ(o.encoder_type, nmt::EncoderType::bi);
  EXPECT_EQ(o.attention, nmt::AttentionKind::none);
  EXPECT_DOUBLE_EQ(o.dropout, 0.2);
  EXPECT_EQ(o.vocab_size, 36548);
  EXPECT_FALSE(o.share_vocab);
}

TEST(Options, ConsequencesOfWhatWasSet) {
  EXPECT_EQ(described({"--beam_width=5"}).infer_mode, nmt::InferMode::beam_search);
  EXPECT_EQ(described({"--preset=multi30k", "--infer_mode=greedy"}).beam_width, 0);
  expect_parts(invalid({"--beam_width=5", "--infer_mode=greedy"}), {"--beam_width=5", "--infer_mode=greedy"});
  expect_parts(invalid({"--sampling_temperature=1", "--infer_mode=greedy"}),
               {"--sampling_temperature=1", "--infer_mode=greedy"});
  EXPECT_TRUE(parse({"--inference_input_file=x", "--out_dir=m"}).options.infer);
  EXPECT_EQ(described({"--preset=quickstart", "--train_prefix=p"}).builtin_corpus, 0);
  EXPECT_FALSE(described({"--attention=luong", "--num_encoder_layers=4"}).pass_hidden_state);
}

// An optimiser would run with another one's settings, or with others than asked for.
TEST(Options, AnOptimizerMeansTheSettingsThatItWasPublishedWith) {
  const Options lamb = described({"--optimizer=lamb"});
  EXPECT_EQ(lamb.adam_epsilon, 1e-6);
  EXPECT_EQ(lamb.weight_decay, 0.01);
  EXPECT_EQ(described({"--optimizer=lamb", "--weight_decay=0"}).weight_decay, 0);
  EXPECT_EQ(described({"--optimizer=adamw"}).weight_decay, 0.01);
  EXPECT_EQ(described({"--optimizer=novograd"}).adam_beta1, 0.95);
  const Options preset = described({"--preset=quickstart", "--optimizer=novograd"});
  EXPECT_EQ(preset.adam_beta2, 0.98);
  EXPECT_EQ(described({"--optimizer=adam"}).adam_beta2, 0.999);
  EXPECT_EQ(described({"--decay_factor=0.5", "--start_decay_step=7"}).decay_scheme, nmt::DecayScheme::exp);
  EXPECT_EQ(described({"--decay_factor=0.5", "--decay_scheme="}).decay_scheme, nmt::DecayScheme::none);
}

Options merged(const Options& saved, std::vector<const char*> arguments,
               std::vector<std::string>* changes = nullptr) {
  arguments.insert(arguments.end(), {"--out_dir=m", "--train_prefix=t"});
  const nmt::ParsedOptions parsed = parse(std::move(arguments));
  const Options options = nmt::with_explicit_options(saved, parsed);
  if (changes != nullptr) *changes = nmt::changes_from_saved(saved, options, parsed);
  return options;
}

Options some_saved_options() {
  Options saved;
  saved.num_units = 77;
  saved.optimizer = nmt::OptimizerKind::adam;
  saved.learning_rate = 0.002;
  saved.train_prefix = std::string("t");  // GCC 12 warns of a plain assignment
  saved.src = "en";
  saved.out_dir = "elsewhere";
  saved.threads = 16;
  saved.device = nmt::DeviceKind::cuda;
  saved.log_jsonl = "log";
  return saved;
}

// A run that goes on would do so at this program's default learning rate, on a machine of another kind.
TEST(Options, WhatWasSavedHoldsUnlessAFlagSaysOtherwise) {
  std::vector<std::string> changes;
  const Options same = merged(some_saved_options(), {}, &changes);
  EXPECT_EQ(same.num_units, 77);
  EXPECT_EQ(same.learning_rate, 0.002);
  EXPECT_EQ(same.out_dir, "m");
  EXPECT_EQ(same.threads, 0);
  EXPECT_EQ(same.device, nmt::DeviceKind::cpu);
  EXPECT_EQ(same.log_jsonl, "");
  EXPECT_TRUE(changes.empty());

  EXPECT_EQ(merged(some_saved_options(), {"--learning_rate=0.001"}, &changes).learning_rate, 0.001);
  EXPECT_EQ(changes, std::vector<std::string>{"--learning_rate: 0.001, the checkpoint had 0.002"});
  // A preset and a file are what this run asks for, too.
  const TemporaryFile file(R"({"learning_rate": 0.5})");
  const Options preset = merged(some_saved_options(), {"--preset=multi30k", file.flag().c_str()});
  EXPECT_EQ(preset.num_units, 256);
  EXPECT_EQ(preset.learning_rate, 0.5);
}

// --override_loaded_hparams would not do what it does in tensorflow/nmt.
TEST(Options, OverrideLoadedHparamsTakesAllOrNothing) {
  std::vector<std::string> changes;
  const Options all = merged(some_saved_options(), {"--override_loaded_hparams", "--batch_size=9"}, &changes);
  EXPECT_EQ(all.num_units, 32);
  EXPECT_EQ(all.learning_rate, 1.0);
  EXPECT_EQ(all.batch_size, 9);
  EXPECT_EQ(changes.size(), 5U);  // with optimizer and src

  const Options none = merged(some_saved_options(),
                              {"--override_loaded_hparams=false", "--preset=multi30k", "--batch_size=9",
                               "--beam_width=3", "--threads=2"},
                              &changes);
  EXPECT_EQ(none.num_units, 77);
  EXPECT_EQ(none.batch_size, 128);
  EXPECT_EQ(none.beam_width, 3);
  EXPECT_EQ(none.infer_mode, nmt::InferMode::beam_search);
  EXPECT_EQ(none.threads, 2);
  EXPECT_EQ(std::ranges::count(changes,
                               "--batch_size: 128 as in the checkpoint, not 9 "
                               "(--override_loaded_hparams=false)"),
            1);
}

// --infer could not use a checkpoint's model with this run's beam, or would keep the checkpoint's mode.
TEST(Options, FlagsForTranslatingChooseTheMode) {
  Options sampled;
  sampled.infer_mode = nmt::InferMode::sample;
  sampled.sampling_temperature = 0.5;
  EXPECT_EQ(merged(sampled, {"--infer"}).infer_mode, nmt::InferMode::sample);
  EXPECT_EQ(merged(sampled, {"--infer", "--beam_width=3"}).infer_mode, nmt::InferMode::beam_search);
  EXPECT_EQ(merged(sampled, {"--infer", "--infer_mode=greedy"}).sampling_temperature, 0);
  Options beam;
  beam.beam_width = 5;
  beam.infer_mode = nmt::InferMode::beam_search;
  EXPECT_EQ(merged(beam, {"--infer"}).infer_mode, nmt::InferMode::beam_search);
  EXPECT_EQ(merged(beam, {"--infer", "--infer_mode=greedy"}).beam_width, 0);
  const Options sample = merged(beam, {"--infer", "--sampling_temperature=0.7"});
  EXPECT_EQ(sample.infer_mode, nmt::InferMode::sample);
  EXPECT_EQ(sample.beam_width, 0);
}

// A person would believe that a flag does something.
TEST(Options, FlagsWithoutEffectAreNamed) {
  const auto found = [](std::vector<const char*> arguments) {
    arguments.push_back("--describe");
    const nmt::ParsedOptions parsed = parse(std::move(arguments));
    return nmt::flags_without_effect(parsed.options, parsed);
  };
  expect_parts(found({"--adam_beta1=0.5", "--length_penalty_weight=1"}),
               {"flags without effect: --adam_beta1=0.5 (the optimiser is sgd or momentum), "
                "--length_penalty_weight=1 (infer_mode is not beam_search)"});
  EXPECT_EQ(found({"--adam_beta1=0.5", "--length_penalty_weight=1", "--optimizer=adam", "--beam_width=3"}),
            "");
  EXPECT_EQ(found({"--adam_beta1=0.9"}), "") << "the default may be said";
  expect_parts(found({"--coverage_penalty_weight=1", "--beam_width=3"}), {"there is no attention"});
  expect_parts(found({"--attention_units=8"}), {"there is no attention"});
  expect_parts(found({"--attention_units=8", "--attention=luong", "--attention_architecture=gnmt"}),
               {"attention_architecture is not standard"});
  EXPECT_EQ(found({"--attention_units=8", "--attention=luong"}), "");
  EXPECT_EQ(found({"--preset=iwslt15"}), "");
}

TEST(Options, InferenceListNamesLinesFromZero) {
  using Numbers = std::vector<std::size_t>;
  EXPECT_EQ(nmt::inference_indices("", 3), (Numbers{0, 1, 2}));
  EXPECT_EQ(nmt::inference_indices("2,0,2", 3), (Numbers{2, 0, 2}));
  for (const char* list : {"3", "-1", "1,", "a", "0 1"}) {
    expect_parts(
        ddl::test::message_of(ddl::ErrorCode::invalid_argument, [&] { nmt::inference_indices(list, 3); }),
        {"--inference_list=", list, "0 to 2"});
  }
}

TEST(Options, JsonKeepsEveryOption) {
  Options options = described({"--preset=multi30k", "--random_seed=18446744073709551615", "--out_dir=a \"b\"",
                               "--learning_rate=0.1", "--adam_epsilon=1e-9", "--output_attention=false",
                               "--decay_boundaries=5,90", "--decay_rates=0.1,1e-3"});
  const Options back = nmt::options_from_json(nmt::to_json(options));
  for (const nmt::Flag& flag : nmt::all_flags()) {
    EXPECT_EQ(nmt::value_text(flag, back), nmt::value_text(flag, options)) << flag.name;
  }
  EXPECT_EQ(back.random_seed, 18446744073709551615U);
  EXPECT_EQ(back.learning_rate, 0.1);
  EXPECT_THROW(nmt::options_from_json("{\"no_such\": 1}"), ddl::Error);
  EXPECT_THROW(nmt::options_from_json("{\"num_units\": 1.5}"), ddl::Error);
}

TEST(Options, HelpAndDescriptionNameEveryFlag) {
  const std::string help = nmt::help_of_program(true);
  const std::string description = nmt::describe_options(described({"--num_units=48"}));
  for (const nmt::Flag& flag : nmt::all_flags()) {
    if (flag.group == nmt::FlagGroup::command) continue;
    EXPECT_NE(help.find(fmt::format("--{}", flag.name)), std::string::npos) << flag.name;
    EXPECT_NE(description.find(fmt::format(" {} ", flag.name)), std::string::npos) << flag.name;
  }
  expect_parts(help, {"(default 32)", "scaled_luong", "ddl_reference"});
  expect_parts(description, {"* num_units                 48\n", "  num_layers                2\n"});
  const std::string common = nmt::help_of_program(false);
  for (const nmt::Flag& flag : nmt::all_flags()) {
    if (flag.group == nmt::FlagGroup::command) continue;
    EXPECT_EQ(common.find(fmt::format("--{} ", flag.name)) == std::string::npos, flag.rare) << flag.name;
  }
  expect_parts(common, {"Data and vocabulary:", "Model:", "Training:", "Distribution over ranks and devices:",
                        "Checkpoints, scores and logs:", "Translating:", "--help=all"});
  expect_parts(help, {"--time_major", "--jobid"});
  EXPECT_TRUE(parse({"--help=all"}).help_all);
  EXPECT_TRUE(parse({"--help", "all"}).help_all);
  EXPECT_FALSE(parse({"--help"}).help_all);
  EXPECT_TRUE(parse({"--help"}).help);
  EXPECT_TRUE(parse({"-h"}).help);
  EXPECT_TRUE(parse({"--version"}).version);
}

nmt::ParsedOptions parse(const nmt::Command& command, std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "command");
  return nmt::parse_options(static_cast<int>(arguments.size()), arguments.data(), &command.syntax);
}

// A command would lack a flag that its help or its example names, or the list of commands would lack a
// command.
TEST(Commands, HelpShowsFlagsAndExample) {
  const std::string list = nmt::help_of_program(false);
  for (const nmt::Command& command : nmt::commands()) {
    SCOPED_TRACE(command.syntax.name);
    expect_parts(list, {fmt::format("  {:<10} {}\n", command.syntax.name, command.syntax.purpose)});
    EXPECT_LT(list.find(command.syntax.purpose), list.find("--num_units"));
    const std::string help = nmt::help_text(command.syntax, true);
    expect_parts(help, {"Usage: ", std::string(command.syntax.example)});
    for (const nmt::Flag& flag : nmt::all_flags()) {
      const bool is_taken = std::ranges::count(command.syntax.flags, flag.name) > 0;
      EXPECT_EQ(help.find(fmt::format("  --{} ", flag.name)) != std::string::npos, is_taken) << flag.name;
    }
    for (const std::string_view name : command.syntax.flags) {
      EXPECT_NE(nmt::find_flag(name), nullptr) << name << " is in no table";
    }
    const std::string example(command.syntax.example);
    for (std::size_t at = example.find(" --"); at != std::string::npos; at = example.find(" --", at + 1)) {
      const std::string flag = example.substr(at + 3, example.find_first_of("= \n", at + 3) - at - 3);
      EXPECT_EQ(std::ranges::count(command.syntax.flags, flag), 1) << flag;
    }
    EXPECT_TRUE(parse(command, {"--help"}).help);
  }
}

// A flag that a command does not use would be ignored, and a mistyped command or flag be hard to correct.
TEST(Commands, RefuseWhatTheyDoNotTake) {
  const auto refused = [](std::vector<const char*> arguments) {
    return ddl::test::message_of(ddl::ErrorCode::invalid_argument,
                                 [&] { parse(nmt::find_command("translate"), std::move(arguments)); });
  };
  expect_parts(refused({"--learning_rate=1"}), {"ddl_nmt translate does not take --learning_rate", "--help"});
  expect_parts(refused({"--beam_widht=1"}), {"unknown flag --beam_widht; did you mean --beam_width?"});
  expect_parts(refused({"words"}), {"unexpected argument 'words'"});
  expect_parts(invalid({"--model=out"}), {"without a command does not take --model"});
  EXPECT_EQ(parse(nmt::find_command("translate"), {"--model", "out"}).options.model, "out");
  expect_parts(ddl::test::message_of(ddl::ErrorCode::invalid_argument, [] { nmt::find_command("trane"); }),
               {"unknown command trane", "did you mean train?"});
}

}  // namespace
