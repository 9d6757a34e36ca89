#include "ddl/log.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <string>

namespace ddl {
namespace {

spdlog::level::level_enum level_for(int rank, int level) {
  if (rank != 0) return spdlog::level::err;
  if (level <= 0) return spdlog::level::warn;
  return level == 1 ? spdlog::level::info : spdlog::level::debug;
}

}  // namespace

struct Log::Sink {
  Sink(int rank, int level)
      : logger(std::to_string(rank), std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger.set_pattern("ddl [%n] %l: %v");
    logger.set_level(level_for(rank, level));
  }
  void write(spdlog::level::level_enum level, std::string_view message) {
    logger.log(level, spdlog::string_view_t(message.data(), message.size()));
  }
  spdlog::logger logger;
};

Log::Log(int rank, int level) : sink_(std::make_unique<Sink>(rank, level)) {}
Log::~Log() = default;
Log::Log(Log&&) noexcept = default;
Log& Log::operator=(Log&&) noexcept = default;

void Log::error(std::string_view message) { sink_->write(spdlog::level::err, message); }
void Log::warning(std::string_view message) { sink_->write(spdlog::level::warn, message); }
void Log::info(std::string_view message) { sink_->write(spdlog::level::info, message); }
void Log::debug(std::string_view message) { sink_->write(spdlog::level::debug, message); }
bool Log::debug_enabled() const noexcept { return sink_->logger.should_log(spdlog::level::debug); }

}  // namespace ddl
