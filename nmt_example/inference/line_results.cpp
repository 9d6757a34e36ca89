#include "nmt_example/inference/line_results.hpp"

namespace nmt {

std::vector<std::string> results_of_ranks(ddl::Context& context, const std::string& joined, std::size_t lines,
                                          std::size_t each) {
  const auto ranks = static_cast<std::size_t>(context.size());
  std::vector<std::string> results(lines * each);
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::string part = context.broadcast_string(joined, static_cast<int>(r));
    std::size_t begin = 0;
    for (std::size_t line = r; line < lines; line += ranks) {
      for (std::size_t i = line * each; i < (line + 1) * each; ++i) {
        const std::size_t end = part.find('\n', begin);
        results[i] = part.substr(begin, end - begin);
        begin = end + 1;
      }
    }
  }
  return results;
}

}  // namespace nmt
