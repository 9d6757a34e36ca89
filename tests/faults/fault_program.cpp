// A job in which one rank does something wrong: `mpirun -n N fault_program FAULT MOMENT VICTIM`. --help says
// more. Ends as the library lets it end.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <span>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include "ddl/ddl.hpp"

namespace {

constexpr std::string_view help = R"(mpirun -n N fault_program FAULT MOMENT VICTIM [ELEMENTS]

Ranks all-reduce three times; around the fourth time rank VICTIM does FAULT:
  kill, stop       SIGKILL, SIGSTOP to itself
  exit             ends with status 0 without a word
  throw            throws an exception
  late             comes after twice the deadline
  other            broadcasts
  count, type, op  all-reduces another count, type, operation
  dump             SIGUSR2 to itself, and goes on: the job ends well
  none             nothing: the job ends well
at MOMENT:
  before           while the others wait for it
  inside           while it waits for the others, of whom the next one comes a second later
  after            once it has its result, while the others compute
ELEMENTS of f32 (default 262144).
)";

constexpr auto a_while = std::chrono::milliseconds(300);

/// Hardly anything goes wrong at a clean place: it comes from another thread.
void hit(std::string_view fault) {
  if (fault == "kill") std::raise(SIGKILL);
  if (fault == "stop") kill(getpid(), SIGSTOP);
  if (fault == "exit") _exit(0);
  if (fault == "dump") kill(getpid(), SIGUSR2);
}

void call_wrongly(ddl::Context& context, std::string_view fault, std::span<float> values) {
  ddl::Communicator& all = context.communicator();
  if (fault == "throw") throw std::runtime_error("the data are gone");
  if (fault == "late") std::this_thread::sleep_for(2 * context.options().deadline);
  if (fault == "other") return all.broadcast(values);
  if (fault == "count") return all.all_reduce(values.first(values.size() / 2));
  if (fault == "op") return all.all_reduce(values, ddl::ReduceOp::max);
  if (fault == "type") {
    std::vector<std::int32_t> others(values.size());
    return all.all_reduce(std::span(others));
  }
  all.all_reduce(values);
}

int run(ddl::Context& context, std::string_view fault, std::string_view moment, int victim,
        std::size_t elements) {
  std::vector<float> values(elements, 1.0F);
  ddl::Communicator& all = context.communicator();
  for (int i = 0; i < 3; ++i) all.all_reduce(std::span(values));
  const bool is_victim = context.rank() == victim;
  if (moment == "inside") {
    if (context.rank() == (victim + 1) % context.size()) std::this_thread::sleep_for(std::chrono::seconds(1));
    std::thread timer;
    if (is_victim) {
      timer = std::thread([fault] {
        std::this_thread::sleep_for(a_while);
        hit(fault);
      });
      timer.detach();
    }
  } else if (moment == "before" && is_victim) {
    std::this_thread::sleep_for(a_while);
    hit(fault);
  }
  if (is_victim && moment != "after") {
    call_wrongly(context, fault, values);
  } else {
    all.all_reduce(std::span(values));
  }
  if (moment == "after") {
    if (is_victim) hit(fault);
    std::this_thread::sleep_for(a_while);
    if (is_victim) {
      call_wrongly(context, fault, values);
    } else {
      all.all_reduce(std::span(values));
    }
  }
  all.barrier();
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string_view> words(arguments + 1, arguments + count);
  int victim = -1;
  std::size_t elements = std::size_t{1} << 18;
  const auto number = [](std::string_view text, auto& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} && end == text.data() + text.size();
  };
  if (words.size() < 3 || !number(words[2], victim) || (words.size() > 3 && !number(words[3], elements))) {
    fmt::print("{}", help);
    return words.size() == 1 && words[0] == "--help" ? 0 : 2;
  }
  return ddl::Context::run_from_environment(
      [&](ddl::Context& context) { return run(context, words[0], words[1], victim, elements); });
}
