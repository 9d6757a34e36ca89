// bleu_of_files HYPOTHESES REFERENCES: prints score, precisions, brevity penalty and lengths; for
// bleu_live_test.py.
#include <fmt/format.h>

#include <exception>

#include "nmt_example/data/parallel_text.hpp"
#include "nmt_example/metrics/bleu.hpp"

int main(int argc, char** argv) try {
  if (argc != 3) {
    fmt::print(stderr, "usage: bleu_of_files HYPOTHESES REFERENCES\n");
    return 2;
  }
  const auto score = nmt::corpus_bleu(nmt::read_lines(argv[1]), nmt::read_lines(argv[2]));
  fmt::print("{:.10f} {:.10f} {:.10f} {} {}\n", score.score, fmt::join(score.precisions, " "),
             score.brevity_penalty, score.hypothesis_length, score.reference_length);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "bleu_of_files: {}\n", error.what());
  return 1;
}
