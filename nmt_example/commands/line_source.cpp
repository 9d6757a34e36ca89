#include "nmt_example/commands/line_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "ddl/error.hpp"

namespace nmt {
namespace {

// Enough for batches of like length, and for all ranks.
constexpr std::size_t window_lines = 2048;
constexpr std::size_t window_bytes = 1 << 20;

}  // namespace

LineSource::LineSource(const Options& options)
    : options_(options), reader_(options.inference_input_file.empty() ? "-" : options.inference_input_file) {
  if (!options.inference_ref_file.empty()) references_.emplace(options.inference_ref_file);
}

LineSource::Window LineSource::next() {
  const bool has_list = !options_.inference_list.empty();
  if (has_list && !std::exchange(list_is_read_, true)) read_list();
  Window window;
  std::size_t bytes = 0;
  for (Line line; window.lines.size() < window_lines && bytes < window_bytes;) {
    if (has_list) {
      if (next_listed_ == listed_.size()) break;
      line = listed_[next_listed_++];
    } else if ((!window.lines.empty() && !reader_.is_ready()) || !read(line)) {
      break;
    }
    bytes += line.text.size() + line.reference.size();
    window.lines.push_back(std::move(line.text));
    if (references_) window.references.push_back(std::move(line.reference));
  }
  return window;
}

bool LineSource::read(Line& line) {
  const bool has_line = reader_.next(line.text);
  if (references_ && references_->next(line.reference) != has_line) refuse_references();
  return has_line;
}

void LineSource::read_list() {
  const std::string& list = options_.inference_list;
  const auto wanted = inference_indices(list, std::numeric_limits<std::size_t>::max());
  std::vector<std::size_t> order(wanted.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return wanted[i]; });
  listed_.resize(wanted.size());
  Line line;
  std::size_t read_lines = 0;
  bool is_end = false;
  for (const std::size_t i : order) {
    for (; read_lines <= wanted[i] && !is_end; ++read_lines) is_end = !read(line);
    if (is_end) inference_indices(list, reader_.lines());  // throws
    listed_[i] = line;
  }
}

void LineSource::refuse_references() {
  // Counts the lines that are left.
  for (std::string line; reader_.next(line);) continue;
  for (std::string line; references_->next(line);) continue;
  throw ddl::Error(
      ddl::ErrorCode::mismatch,
      fmt::format("--inference_ref_file={} has {} lines and the input {}; line i of one must be the "
                  "reference of line i of the other",
                  options_.inference_ref_file, references_->lines(), reader_.lines()));
}

}  // namespace nmt
