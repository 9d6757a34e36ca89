#include <fmt/format.h>

#include <algorithm>

#include "topology/verifier/verifier_expressions.hpp"

namespace ddl::topology::verification {
namespace {

class SymbolicRun {
 public:
  SymbolicRun(const StepNumbers& steps, const Streams& streams)
      : steps_(steps),
        streams_(streams),
        schedule_(steps.schedule()),
        expressions_(static_cast<int>(schedule_.ranks.size())) {
    memories_.reserve(schedule_.ranks.size());
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      const bool has_piece = schedule_.collective == Collective::all_gather;
      memories_.emplace_back(schedule_.count + schedule_.ranks[rank].scratch,
                             static_cast<Expressions::Id>(rank), has_piece ? piece_begin(rank) : 0,
                             has_piece ? piece_begin(rank + 1) : schedule_.count);
    }
  }

  std::string run(const std::vector<StepId>& order) {
    for (const StepId id : order) {
      if (std::string problem = run(id); !problem.empty()) return problem;
    }
    for (std::size_t rank = 0; rank < memories_.size(); ++rank) {
      if (std::string problem = check_end(rank); !problem.empty()) return problem;
    }
    return schedule_.collective == Collective::all_reduce ? check_same_bits() : std::string();
  }

 private:
  /// Where a rank's piece begins, in a reduce_scatter or all_gather.
  [[nodiscard]] std::size_t piece_begin(std::size_t rank) const {
    return schedule_.count / schedule_.ranks.size() * rank;
  }
  SymbolicMemory& memory(StepId id) { return memories_[as_index(steps_.rank(id))]; }

  /// Executes a send with its receive, a local step, or a run.
  std::string run(StepId id) {
    if (steps_[id].kind == StepKind::send) return run_step(streams_.partner(id));
    const StepId end = steps_.end_of_run(id);
    std::string problem;
    for (; id < end && problem.empty(); ++id) problem = run_step(id);
    return problem;
  }

  std::string run_step(StepId id) {
    const Step& step = steps_[id];
    if (step.kind == StepKind::finish) return finish(id);
    if (step.kind == StepKind::round) return round(id);
    const bool receives = is_receive(step.kind);
    const StepId from = receives ? streams_.partner(id) : id;
    const std::size_t begin = receives ? steps_[from].begin : step.source;
    std::string problem = read_written(from, begin, begin + step.size(), incoming_);
    if (!problem.empty()) return problem;
    if (receives && step.narrow) {
      for (const Piece& piece : incoming_) {
        if (expressions_.is_narrow(piece.expression)) continue;
        return fmt::format(
            "{}: found that element {} is narrow, but was not rounded; expected a `round` before",
            steps_.name(from), piece.origin);
      }
    }
    return take(id, step.kind == StepKind::receive_reduce || step.kind == StepKind::reduce);
  }

  std::string read_written(StepId id, std::size_t begin, std::size_t end, Pieces& pieces) {
    memory(id).read(begin, end, pieces);
    for (const Piece& piece : pieces) {
      if (piece.expression == Expressions::nothing) {
        return fmt::format(
            "{}: found that it reads address {}, which nothing was written to; expected {} or what an "
            "earlier "
            "step wrote",
            steps_.name(id), begin, own_data(steps_.rank(id)));
      }
      begin += piece.length;
    }
    return {};
  }

  [[nodiscard]] bool combines() const {
    return schedule_.collective != Collective::broadcast && schedule_.collective != Collective::all_gather;
  }

  [[nodiscard]] std::string a_collective() const {
    const std::string_view name = to_string(schedule_.collective);
    return fmt::format("a{} {}", name.starts_with('a') ? "n" : "", name);
  }

  [[nodiscard]] std::string own_data(int rank) const {
    if (schedule_.collective != Collective::all_gather) {
      return fmt::format("the buffer, [0, {}),", schedule_.count);
    }
    const auto r = as_index(rank);
    return fmt::format("the rank's piece, [{}, {}),", piece_begin(r), piece_begin(r + 1));
  }

  /// Puts `incoming_` into the range of a receive, receive_reduce, reduce or copy.
  std::string take(StepId id, bool reduces) {
    const Step& step = steps_[id];
    if (!reduces) {
      memory(id).write(step.begin, incoming_);
      return {};
    }
    if (!combines()) {
      return fmt::format("{}: found a reduction, expected none in {}", steps_.name(id), a_collective());
    }
    std::string problem = read_written(id, step.begin, step.end, present_);
    if (!problem.empty()) return problem;
    // The sum of a run is rounded only at its end, so it is a different expression from that of single steps.
    const bool is_rounded = steps_.end_of_run(id) == id + 1;
    result_.clear();
    auto present = present_.begin();
    auto incoming = incoming_.begin();
    for (std::size_t at = step.begin; at < step.end;) {
      const std::size_t length = std::min(present->length, incoming->length);
      if (present->origin != incoming->origin) {
        return fmt::format("{}: found that it combines element {} at address {} with element {}, expected {}",
                           steps_.name(id), present->origin, at, incoming->origin,
                           "the same element of both operands");
      }
      if (present->finished || incoming->finished) {
        return fmt::format("{}: found that element {} {} is finished already, expected reductions before {}",
                           steps_.name(id), present->origin,
                           present->finished ? "of the range" : "that comes in", "`finish`");
      }
      append(result_,
             {length, present->origin,
              expressions_.combine(present->expression, incoming->expression, id, is_rounded), false});
      advance(present, length);
      advance(incoming, length);
      at += length;
    }
    memory(id).write(step.begin, result_);
    return {};
  }

  static void advance(Pieces::iterator& piece, std::size_t length) {
    piece->length -= length;
    piece->origin += length;
    if (piece->length == 0) ++piece;
  }

  std::string round(StepId id) {
    const Step& step = steps_[id];
    std::string problem = read_written(id, step.begin, step.end, present_);
    if (!problem.empty()) return problem;
    for (Piece& piece : present_) piece.expression = expressions_.to_wire(piece.expression, id);
    memory(id).write(step.begin, present_);
    return {};
  }

  std::string finish(StepId id) {
    const Step& step = steps_[id];
    if (!combines() || schedule_.collective == Collective::barrier) {
      return fmt::format("{}: found a finish, expected none in {}", steps_.name(id), a_collective());
    }
    memory(id).read(step.begin, step.end, present_);
    for (Piece& piece : present_) {
      if (piece.finished) {
        return fmt::format("{}: found that element {} is finished already, expected it once", steps_.name(id),
                           piece.origin);
      }
      if (piece.expression == Expressions::nothing || !expressions_.complete(piece.expression)) {
        return fmt::format("{}: element {}: found {}, expected each rank's contribution once",
                           steps_.name(id), piece.origin, expressions_.describe(piece.expression, steps_));
      }
      if (expressions_.is_narrow(piece.expression)) {
        return fmt::format(
            "{}: found that element {} is already rounded to the wire, expected it finished first",
            steps_.name(id), piece.origin);
      }
      piece.finished = true;
    }
    memory(id).write(step.begin, present_);
    return {};
  }

  /// Visits the pieces of a range of a rank's buffer. `visit(piece)` returns what is wrong.
  template <typename Visit>
  std::string at_the_end(std::size_t rank, std::size_t begin, std::size_t end, Visit visit) {
    memories_[rank].read(begin, end, present_);
    std::size_t at = begin;
    for (const Piece& piece : present_) {
      std::string problem = visit(piece);
      if (problem.empty() && piece.expression != Expressions::nothing && piece.origin != at) {
        problem = fmt::format("found element {}, expected element {}", piece.origin, at);
      }
      if (!problem.empty()) return fmt::format("rank {}, at the end, element {}: {}", rank, at, problem);
      at += piece.length;
    }
    return {};
  }

  std::string check_reduced(const Piece& piece) {
    if (piece.expression == Expressions::nothing || !expressions_.complete(piece.expression)) {
      return fmt::format("found {}, expected each rank's contribution once",
                         expressions_.describe(piece.expression, steps_));
    }
    if (!piece.finished) return "found that it is not finished, expected a `finish` of it";
    return {};
  }

  std::string check_copied(const Piece& piece, Expressions::Id from, std::string_view who) const {
    if (piece.expression == from) return {};
    const std::string found = piece.expression == Expressions::nothing
                                  ? "nothing that was ever written"
                                  : fmt::format("rank {}'s data", piece.expression);
    return fmt::format("found {}, expected rank {}'s, {}", found, from, who);
  }

  std::string check_end(std::size_t rank) {
    const auto is_reduced = [&](const Piece& piece) { return check_reduced(piece); };
    switch (schedule_.collective) {
      case Collective::all_reduce:
        return at_the_end(rank, 0, schedule_.count, is_reduced);
      case Collective::reduce_scatter:
        return at_the_end(rank, piece_begin(rank), piece_begin(rank + 1), is_reduced);
      case Collective::reduce:
        return at_the_end(rank, 0, static_cast<int>(rank) == schedule_.root ? schedule_.count : 0,
                          is_reduced);
      case Collective::broadcast:
        return at_the_end(rank, 0, schedule_.count, [&](const Piece& piece) {
          return check_copied(piece, static_cast<Expressions::Id>(schedule_.root), "the root's");
        });
      case Collective::all_gather:
        break;
      case Collective::barrier:
        return at_the_end(rank, 0, schedule_.count, [&](const Piece& piece) -> std::string {
          if (expressions_.has_all(piece.expression)) return {};
          return fmt::format("found {}, expected to hear of each rank",
                             expressions_.describe(piece.expression, steps_));
        });
    }
    for (std::size_t of = 0; of < memories_.size(); ++of) {
      std::string problem = at_the_end(rank, piece_begin(of), piece_begin(of + 1), [&](const Piece& piece) {
        return check_copied(piece, static_cast<Expressions::Id>(of), "whose piece it is");
      });
      if (!problem.empty()) return problem;
    }
    return {};
  }

  std::string check_same_bits() {
    if (schedule_.count == 0) return {};
    Pieces first;
    memories_[0].read(0, schedule_.count, first);
    for (std::size_t rank = 1; rank < memories_.size(); ++rank) {
      memories_[rank].read(0, schedule_.count, present_);
      // Both have the longest possible pieces, so equal contents have equal pieces.
      const auto [mine, other] = std::ranges::mismatch(first, present_);
      if (mine == first.end()) continue;
      const bool is_shorter = mine->expression == other->expression;
      return fmt::format(
          "ranks 0 and {}, at the end, element {}: found contributions combined in another order, expected "
          "the same on all ranks, so that all get the same bits",
          rank, mine->origin + (is_shorter ? std::min(mine->length, other->length) : 0));
    }
    return {};
  }

  const StepNumbers& steps_;
  const Streams& streams_;
  const Schedule& schedule_;
  Expressions expressions_;
  std::vector<SymbolicMemory> memories_;
  Pieces incoming_;
  Pieces present_;
  Pieces result_;
};

}  // namespace

std::string check_content(const StepNumbers& steps, const Streams& streams,
                          const std::vector<StepId>& order) {
  return SymbolicRun(steps, streams).run(order);
}

}  // namespace ddl::topology::verification
