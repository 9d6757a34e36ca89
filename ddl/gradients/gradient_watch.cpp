#include "ddl/gradients/gradient_watch.hpp"

#include "ddl/context/context_state.hpp"

namespace ddl {
namespace {

constexpr const char* track = "gradients";

}  // namespace

GradientWatch::GradientWatch(Context& context)
    : timeline_(context.timeline()), observer_(observer_of(context)) {
  if (const int every = context.options().dump_iterations; every > 0 && observer_ != nullptr) {
    dump_.emplace(context, *observer_, every);
  }
}

collectives::RunStatistics::Shares GradientWatch::shares() const {
  return observer_->recorder()->settled_statistics().all();
}

void GradientWatch::ready(const std::string& gradient, bool has_value) {
  if (wants_events()) timeline_.instant(track, (has_value ? "ready: " : "absent: ") + gradient);
}

void GradientWatch::queued(const std::string& bucket, std::uint64_t bytes) {
  if (dump_) dump_->arrived();
  timeline_.instant(track, "queue " + bucket, {{"bytes", static_cast<std::int64_t>(bytes)}});
}

void GradientWatch::reduced() {
  if (observer_ == nullptr || !at_begin_) return;
  const collectives::RunStatistics::Shares now = shares();
  observer_->recorder()->statistics().gradient_step(now.busy - at_begin_->busy,
                                                    now.waited - at_begin_->waited);
}

}  // namespace ddl
