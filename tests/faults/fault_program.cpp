// A job in which one rank fails or misbehaves: `mpirun -n N fault_program FAULT MOMENT VICTIM`; see --help.
// The library decides how it ends.
#include <fcntl.h>
#include <fmt/format.h>
#include <mpi.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <set>
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
  fork             leaves a child behind that lives for 3 s more, then SIGKILL to itself
  exit             ends with status 0 without a word
  throw            throws an exception
  late             comes after twice the deadline
  other            broadcasts
  garbage          sends garbage to rank 0, through the connection that tells of ranks' deaths
  stranger         knocks at every port that the job has open, and sends garbage; the job ends well
  allocate         asks for more shared memory than there is
  count, type, op  all-reduces another count, type, operation
  dump             SIGUSR2 to itself, and goes on: the job ends well
  none             nothing: the job ends well
  forever          nothing, and the job does not end by itself
  memory           may map no more memory, from before the start on: the job ends well, with a warning
  descriptors      may open no more files, from before the start on
at MOMENT:
  start            before there is a Context
  before           while the others wait for it
  inside           while it waits for the others, of whom the next one comes a second later
  after            once it has its result, while the others compute
  computing        the same, and they compute for longer than plain mpirun lets them live
  root_only        while rank 0 does work "checkpoint" of root_only for some seconds, and the others wait
ELEMENTS of f32 (default 262144).
)";

constexpr auto a_while = std::chrono::milliseconds(300);
constexpr auto a_long_while = std::chrono::milliseconds(3000);

std::set<int> open_descriptors() {
  std::set<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    found.insert(std::stoi(entry.path().filename().string()));
  }
  std::erase_if(found, [](int descriptor) {
    return fcntl(descriptor, F_GETFD) < 0;
  });  // the descriptor of the directory itself
  return found;
}
/// Descriptors that were open before the Context was made.
std::set<int> foreign_descriptors;

template <typename F>
void each_socket_of_the_job(F&& f) {
  for (const int descriptor : open_descriptors()) {
    if (foreign_descriptors.contains(descriptor)) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &length) != 0) continue;
    if (own.ss_family != AF_INET && own.ss_family != AF_INET6) continue;
    int listens = 0;
    length = sizeof listens;
    getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length);
    f(descriptor, own, listens != 0);
  }
}

constexpr std::string_view garbage =
    "GET / HTTP/1.1\r\nHost: nobody\r\n\r\n and more that means nothing at all";

std::uint16_t port_of(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr_in&>(address).sin_port;  // at the same offset in IPv6
}

/// Sends garbage through the watch's connections. Its connection is the first one; in rank 0's process the
/// others are the hub's, which all have the hub's port.
void send_garbage() {
  int first = -1;
  int to_own_hub = -1;
  std::multiset<std::uint16_t> own_ports;
  each_socket_of_the_job([&](int, const sockaddr_storage& own, bool listens) {
    if (!listens) own_ports.insert(port_of(own));
  });
  each_socket_of_the_job([&](int descriptor, const sockaddr_storage&, bool listens) {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    if (listens || getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &length) != 0) return;
    if (first < 0) first = descriptor;
    if (own_ports.count(port_of(peer)) > 1) to_own_hub = descriptor;
  });
  const int chosen = to_own_hub >= 0 ? to_own_hub : first;
  if (chosen < 0 || send(chosen, garbage.data(), garbage.size(), MSG_NOSIGNAL) < 0) {
    throw std::runtime_error("there is no connection to send garbage through");
  }
}

void knock() {
  each_socket_of_the_job([&](int, sockaddr_storage own, bool listens) {
    if (!listens) return;
    const int visitor = socket(own.ss_family, SOCK_STREAM, 0);
    auto* const address = reinterpret_cast<sockaddr*>(&own);
    if (connect(visitor, address, sizeof own) == 0) {
      for (int i = 0; i < 100; ++i) {
        if (send(visitor, garbage.data(), garbage.size(), MSG_NOSIGNAL) < 0) break;
      }
    }
    close(visitor);
  });
}

void limit(int resource, rlim_t most) {
  const rlimit both{most, most};
  if (setrlimit(static_cast<__rlimit_resource>(resource), &both) != 0) throw std::runtime_error("setrlimit");
}

/// The size of this process's address space.
rlim_t mapped_bytes() {
  std::size_t pages = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%zu", &pages) != 1) throw std::runtime_error("/proc/self/statm");
  std::fclose(file);
  return static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

void go_short(std::string_view fault) {
  constexpr rlim_t some = rlim_t{200} << 20;  // enough for threads' stacks, but not for shared memory
  if (fault == "memory") limit(RLIMIT_AS, mapped_bytes() + some);
  if (fault == "descriptors") limit(RLIMIT_NOFILE, static_cast<rlim_t>(*foreign_descriptors.rbegin()) + 1);
}

/// Does the fault, from another thread, because real faults rarely happen at a convenient place.
void hit(std::string_view fault) {
  if (fault == "fork" && fork() == 0) {
    for (const int output : {STDOUT_FILENO, STDERR_FILENO}) close(output);
    sleep(3);
    _exit(0);
  }
  if (fault == "kill" || fault == "fork") std::raise(SIGKILL);
  if (fault == "stop") kill(getpid(), SIGSTOP);
  if (fault == "exit") _exit(0);
  if (fault == "dump") kill(getpid(), SIGUSR2);
}

void hit_later(std::string_view fault) {
  std::thread([fault] {
    std::this_thread::sleep_for(a_while);
    hit(fault);
  }).detach();
}

void call_wrongly(ddl::Context& context, std::string_view fault, std::span<float> values) {
  ddl::Communicator& all = context.communicator();
  if (fault == "throw") throw std::runtime_error("the data are gone");
  if (fault == "late") std::this_thread::sleep_for(2 * context.options().deadline);
  if (fault == "other") return all.broadcast(values);
  if (fault == "garbage") {
    send_garbage();
    std::this_thread::sleep_for(std::chrono::seconds(1));  // a job that ends at once may end without an error
  }
  if (fault == "stranger") knock();
  if (fault == "allocate") ddl::allocate<double>(context, std::numeric_limits<std::size_t>::max() / 64);
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
  for (int i = 0; i < 3 || fault == "forever"; ++i) all.all_reduce(std::span(values));
  const bool is_victim = context.rank() == victim;
  if (moment == "root_only") {
    if (is_victim) hit_later(fault);
    context.root_only("checkpoint", [] { std::this_thread::sleep_for(std::chrono::seconds(4)); });
  }
  if (moment == "inside") {
    if (context.rank() == (victim + 1) % context.size()) std::this_thread::sleep_for(std::chrono::seconds(1));
    if (is_victim) hit_later(fault);
  } else if (moment == "before" && is_victim) {
    std::this_thread::sleep_for(a_while);
    hit(fault);
  }
  const bool is_after = moment == "after" || moment == "computing";
  if (is_victim && !is_after) {
    call_wrongly(context, fault, values);
  } else {
    all.all_reduce(std::span(values));
  }
  if (is_after) {
    if (is_victim) hit(fault);
    std::this_thread::sleep_for(moment == "computing" ? a_long_while : a_while);
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
  // To tell MPI's descriptors from the library's.
  const bool inits_mpi = words[1] == "start" || words[0] == "garbage" || words[0] == "stranger";
  if (inits_mpi) {
    MPI_Init(nullptr, nullptr);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    foreign_descriptors = open_descriptors();
    if (rank == victim && words[1] == "start") go_short(words[0]);
  }
  const int result = ddl::Context::run_from_environment(
      [&](ddl::Context& context) { return run(context, words[0], words[1], victim, elements); });
  if (result == 0 && inits_mpi) MPI_Finalize();
  return result;
}
