#include "matrix/trial.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ddl/shared_buffer.hpp"

namespace matrix {

using ddl::topology::Collective;

namespace {

constexpr std::size_t guard = 64;

std::size_t inputs_of(const Case& one, std::size_t count, std::size_t ranks) {
  return one.collective == Collective::reduce_scatter ? count * ranks : count;
}
std::size_t outputs_of(const Case& one, std::size_t count, std::size_t ranks) {
  return one.collective == Collective::all_gather ? count * ranks : count;
}
std::size_t shift_of(const Case& one) { return one.memory == Memory::shifted ? size_of(one.type) : 0; }

}  // namespace

GuardedBuffer::GuardedBuffer(ddl::Context& context, std::size_t bytes, bool is_registered, std::size_t shift)
    : bytes_(bytes), begin_(guard + shift), total_(begin_ + bytes + guard) {
  if (is_registered) {
    memory_ = ddl::allocate_bytes(context, total_).release();
  } else {
    memory_ = std::shared_ptr<std::byte[]>(new std::byte[total_]);
  }
  std::fill_n(all(), total_, garbage);
}

bool GuardedBuffer::is_guarded() const {
  const auto is_garbage = [](std::byte byte) { return byte == garbage; };
  return std::all_of(all(), all() + begin_, is_garbage) &&
         std::all_of(all() + begin_ + bytes_, all() + total_, is_garbage);
}

Trial::Trial(const Case& one, ddl::Context& context, const ddl::Communicator& communicator)
    : case_(one),
      communicator_(communicator),
      rank_(communicator.rank()),
      ranks_(static_cast<std::size_t>(communicator.size())),
      count_(elements_of(one)),
      element_(size_of(one.type)),
      root_(static_cast<int>((count_ + static_cast<std::size_t>(one.type)) % ranks_)),
      values_(one),
      whole_(context, std::max(inputs_of(one, count_, ranks_), outputs_of(one, count_, ranks_)) * element_,
             one.memory != Memory::plain, shift_of(one)),
      separate_(context, one.in_place ? 0 : inputs_of(one, count_, ranks_) * element_,
                one.memory == Memory::registered || one.memory == Memory::shifted, shift_of(one)) {
  const std::size_t piece = count_ * element_;
  const std::size_t own = static_cast<std::size_t>(rank_) * piece;
  input_ = one.in_place ? whole_.data() : separate_.data();
  output_ = whole_.data();
  if (one.in_place && one.collective == Collective::all_gather) input_ = output_.subspan(own, piece);
  if (one.in_place && one.collective == Collective::reduce_scatter) output_ = input_.subspan(own, piece);
  if (!one.in_place) output_ = output_.first(outputs_of(one, count_, ranks_) * element_);
  if (has_input()) values_.write(rank_, first_of_input(), input_);
  from_ = has_input() || one.in_place ? input_.data() : nullptr;
  to_ = has_output() || one.in_place ? output_.data() : nullptr;
}

bool Trial::has_input() const noexcept { return case_.collective != Collective::broadcast || rank_ == root_; }
bool Trial::has_output() const noexcept { return case_.collective != Collective::reduce || rank_ == root_; }

std::size_t Trial::first_of_input() const noexcept {
  return case_.collective == Collective::all_gather ? static_cast<std::size_t>(rank_) * count_ : 0;
}

void Trial::run() {
  if (case_.is_async) {
    start().wait();
  } else {
    call();
  }
}

void Trial::call() {
  ddl::Communicator& c = communicator_;
  switch (case_.collective) {
    case Collective::all_reduce:
      return c.all_reduce(from_, to_, count_, case_.type, case_.op);
    case Collective::reduce_scatter:
      return c.reduce_scatter(from_, to_, count_, case_.type, case_.op);
    case Collective::all_gather:
      return c.all_gather(from_, to_, count_, case_.type);
    case Collective::broadcast:
      return c.broadcast(from_, to_, count_, case_.type, root_);
    case Collective::reduce:
      return c.reduce(from_, to_, count_, case_.type, case_.op, root_);
    case Collective::barrier:
      return c.barrier();
  }
}

ddl::Work Trial::start() {
  ddl::Communicator& c = communicator_;
  switch (case_.collective) {
    case Collective::all_reduce:
      return c.all_reduce_async(from_, to_, count_, case_.type, case_.op);
    case Collective::reduce_scatter:
      return c.reduce_scatter_async(from_, to_, count_, case_.type, case_.op);
    case Collective::all_gather:
      return c.all_gather_async(from_, to_, count_, case_.type);
    case Collective::broadcast:
      return c.broadcast_async(from_, to_, count_, case_.type, root_);
    case Collective::reduce:
      return c.reduce_async(from_, to_, count_, case_.type, case_.op, root_);
    case Collective::barrier:
      return c.barrier_async();
  }
  return {};
}

std::string Trial::wrong() const {
  std::string text;
  const auto report = [&](std::size_t number, const char* what) {
    if (number != 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", number, what);
  };
  const std::size_t piece = count_ * element_;
  switch (case_.collective) {
    case Collective::all_reduce:
      report(values_.differ_from_reduction(0, output_), "wrong elements");
      break;
    case Collective::reduce_scatter:
      report(values_.differ_from_reduction(static_cast<std::size_t>(rank_) * count_, output_),
             "wrong elements");
      break;
    case Collective::reduce:
      if (has_output()) {
        report(values_.differ_from_reduction(0, output_), "wrong elements");
      } else if (case_.in_place) {
        report(values_.differ_from_input(rank_, 0, output_),
               "changed elements of a rank that is not the root");
      } else {
        const auto is_changed = [](std::byte byte) { return byte != GuardedBuffer::garbage; };
        report(static_cast<std::size_t>(std::ranges::count_if(output_, is_changed)),
               "bytes of another rank's output written");
      }
      break;
    case Collective::broadcast:
      report(values_.differ_from_input(root_, 0, output_), "wrong elements");
      break;
    case Collective::all_gather:
      for (std::size_t from = 0; from < ranks_; ++from) {
        report(values_.differ_from_input(static_cast<int>(from), from * count_,
                                         output_.subspan(from * piece, piece)),
               "wrong elements of a rank");
      }
      break;
    case Collective::barrier:
      break;
  }
  if (!case_.in_place && has_input()) {
    report(values_.differ_from_input(rank_, first_of_input(), input_), "changed elements of the input");
  }
  if (!whole_.is_guarded() || !separate_.is_guarded()) text += " memory outside of the buffers is written";
  return text;
}

}  // namespace matrix
