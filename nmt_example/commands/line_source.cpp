#include "nmt_example/commands/line_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "ddl/error.hpp"
#include "nmt_example/data/line_reader.hpp"
#include "nmt_example/options/options.hpp"

namespace nmt {
namespace {

// Enough for batches of like length, and for all ranks.
constexpr std::size_t window_lines = 2048;
constexpr std::size_t window_bytes = 1 << 20;

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

std::vector<std::string> broadcast_lines(ddl::Context& context, std::span<const std::string> lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return split_lines(context.broadcast_string(text));
}

class LineSource::Reader {
 public:
  Reader(NamedFile file, NamedFile beside, std::string list)
      : file_(std::move(file)),
        second_(std::move(beside)),
        list_(std::move(list)),
        lines_(file_.path.empty() ? "-" : file_.path) {
    if (!second_.path.empty()) beside_.emplace(second_.path);
  }

  LineWindow next() {
    if (!list_.empty() && !std::exchange(list_is_read_, true)) read_list();
    LineWindow window;
    std::size_t bytes = 0;
    for (Pair pair; window.lines.size() < window_lines && bytes < window_bytes;) {
      if (!list_.empty()) {
        if (next_listed_ == listed_.size()) break;
        pair = listed_[next_listed_++];
      } else if ((!window.lines.empty() && !lines_.is_ready()) || !read(pair)) {
        break;
      }
      bytes += pair.line.size() + pair.beside.size();
      window.lines.push_back(std::move(pair.line));
      if (beside_) window.beside.push_back(std::move(pair.beside));
    }
    return window;
  }

 private:
  struct Pair {
    std::string line, beside;
  };

  bool read(Pair& pair) {
    const bool has_line = lines_.next(pair.line);
    if (beside_ && beside_->next(pair.beside) != has_line) refuse_counts();
    return has_line;
  }

  void read_list() {
    const auto wanted = inference_indices(list_, std::numeric_limits<std::size_t>::max());
    std::vector<std::size_t> order(wanted.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return wanted[i]; });
    listed_.resize(wanted.size());
    Pair pair;
    bool is_end = false;
    for (const std::size_t i : order) {
      while (lines_.lines() <= wanted[i] && !is_end) is_end = !read(pair);
      if (is_end) inference_indices(list_, lines_.lines());  // throws
      listed_[i] = pair;
    }
  }

  [[noreturn]] void refuse_counts() {
    // Counts the lines that are left.
    for (std::string line; lines_.next(line);) continue;
    for (std::string line; beside_->next(line);) continue;
    throw ddl::Error(
        ddl::ErrorCode::mismatch,
        fmt::format("--{}={} has {} lines and {} {}; line i of one must belong to line i of the other",
                    second_.flag, second_.path, beside_->lines(),
                    file_.path.empty() ? "the input" : fmt::format("--{}={}", file_.flag, file_.path),
                    lines_.lines()));
  }

  NamedFile file_, second_;
  std::string list_;
  LineReader lines_;
  std::optional<LineReader> beside_;
  std::vector<Pair> listed_;
  std::size_t next_listed_ = 0;
  bool list_is_read_ = false;
};

LineSource::LineSource(ddl::Context& context, NamedFile file, NamedFile beside, std::string list)
    : context_(context), has_beside_(!beside.path.empty()) {
  context.root_only("open the lines to read", [&] {
    reader_ = std::make_unique<Reader>(std::move(file), std::move(beside), std::move(list));
  });
}

LineSource::~LineSource() = default;

LineWindow LineSource::next() {
  LineWindow window;
  context_.root_only("read lines", [&] { window = reader_->next(); });
  window.lines = broadcast_lines(context_, window.lines);
  if (has_beside_) window.beside = broadcast_lines(context_, window.beside);
  return window;
}

}  // namespace nmt
