#include "ddl/log.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <string>

namespace ddl {

struct Log::Sink {
  Sink(int rank, int level_)
      : logger(std::to_string(rank), std::make_shared<spdlog::sinks::stderr_sink_mt>()), level(level_) {
    logger.set_pattern("ddl [%n] %l: %v");
    logger.set_level(rank == 0 ? spdlog::level::debug : spdlog::level::err);
  }
  void write(spdlog::level::level_enum severity, std::string_view message) {
    logger.log(severity, spdlog::string_view_t(message.data(), message.size()));
  }
  spdlog::logger logger;
  int level;
};

Log::Log(int rank, int level) : sink_(std::make_unique<Sink>(rank, level)) {}
Log::~Log() = default;
Log::Log(Log&&) noexcept = default;
Log& Log::operator=(Log&&) noexcept = default;

void Log::error(std::string_view message) { sink_->write(spdlog::level::err, message); }
void Log::warning(std::string_view message) { sink_->write(spdlog::level::warn, message); }
void Log::notice(std::string_view message) { sink_->write(spdlog::level::info, message); }
void Log::info(std::string_view message) {
  if (sink_->level >= 1) sink_->write(spdlog::level::info, message);
}
void Log::debug(std::string_view message) {
  if (debug_enabled()) sink_->write(spdlog::level::debug, message);
}
bool Log::debug_enabled() const noexcept {
  return sink_->level >= 2 && sink_->logger.should_log(spdlog::level::debug);
}

}  // namespace ddl
