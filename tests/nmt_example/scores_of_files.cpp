// scores_of_files HYPOTHESES REFERENCES: prints BLEU's score, precisions, brevity penalty and lengths, and
// chrF, TER; for metric_live_test.py.
#include <fmt/format.h>

#include <exception>

#include "nmt_example/data/line_reader.hpp"
#include "nmt_example/metrics/bleu.hpp"
#include "nmt_example/metrics/chrf.hpp"
#include "nmt_example/metrics/ter.hpp"

int main(int argc, char** argv) try {
  if (argc != 3) {
    fmt::print(stderr, "usage: scores_of_files HYPOTHESES REFERENCES\n");
    return 2;
  }
  const auto hypotheses = nmt::read_lines(argv[1]);
  const auto references = nmt::read_lines(argv[2]);
  const auto score = nmt::corpus_bleu(hypotheses, references);
  fmt::print("{:.10f} {:.10f} {:.10f} {} {} {:.10f} {:.10f}\n", score.score, fmt::join(score.precisions, " "),
             score.brevity_penalty, score.hypothesis_length, score.reference_length,
             nmt::corpus_chrf(hypotheses, references), nmt::corpus_ter(hypotheses, references));
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "scores_of_files: {}\n", error.what());
  return 1;
}
