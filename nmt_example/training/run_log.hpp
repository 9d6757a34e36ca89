#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nmt {

/// A number with its name in logs.
struct LogValue {
  std::string name;
  double value = 0;
  int digits = 9;  ///< That are written, where numbers are text.
};

/// A log of values by the step after which they hold, which never decreases. A new run (start_step 0)
/// overwrites it; a resumed one continues it, without what was written of steps after `start_step`.
/// Throws `ddl::Error`: `io` if it cannot be written (checked for every line), `corrupt_data` if what is to
/// be continued is no such log.
class LogWriter {
 public:
  LogWriter() = default;
  LogWriter(const LogWriter&) = delete;
  virtual ~LogWriter() = default;
  virtual void write(std::int64_t step, std::span<const LogValue> values) = 0;
};

/// One JSON object a line, with `step` and the values; one that is not finite is null.
std::unique_ptr<LogWriter> json_lines(const std::string& path, std::int64_t start_step);
/// Text with commas: a line of names, `step` and those of `columns`, then one a call. Values that are
/// missing, or not finite, are empty.
std::unique_ptr<LogWriter> comma_separated(const std::string& path, std::int64_t start_step,
                                           std::vector<std::string> columns);
/// Event files of TensorBoard: each run, also one that is resumed, writes a file of its own in `directory`,
/// which is made if it is missing.
std::unique_ptr<LogWriter> tensorboard_events(const std::string& directory, std::int64_t start_step);

}  // namespace nmt
