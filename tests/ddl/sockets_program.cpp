// A rank of a job without MPI: see sockets_test.sh.
//   sockets_program sum          all-reduces a value and prints the sum
//   sockets_program die RANK     does the same; then that rank kills itself
#include <fmt/format.h>

#include <csignal>
#include <string>
#include <string_view>
#include <vector>

#include "ddl/ddl.hpp"

int main(int count, char** arguments) {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  return ddl::Context::run_from_environment([&](ddl::Context& context) {
    std::vector<float> values(1000, static_cast<float>(context.rank() + 1));
    context.communicator().all_reduce(std::span(values));
    if (words.size() > 1 && context.rank() == std::stoi(words[1])) static_cast<void>(raise(SIGKILL));
    context.communicator().all_reduce(std::span(values));
    fmt::print("rank {} of {}, local {} of {}: {}\n", context.rank(), context.size(), context.local_rank(),
               context.local_size(), values.back());
    return 0;
  });
}
