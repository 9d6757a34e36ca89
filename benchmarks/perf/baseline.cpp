#include "perf/baseline.hpp"

#include "ddl/error.hpp"

namespace perf {

std::unique_ptr<Baseline> make_baseline(BaselineKind kind, ddl::Context& context,
                                        const std::shared_ptr<ThreadTeam>& team) {
  const auto require = [](std::unique_ptr<Baseline> baseline, const char* message) {
    if (!baseline) throw ddl::Error(ddl::ErrorCode::unsupported, message).as_agreed();
    return baseline;
  };
  switch (kind) {
    case BaselineKind::none:
      break;
    case BaselineKind::mpi:
      return require(make_mpi_baseline(),
                     "--baseline mpi: this build has no MPI; install it (Debian: libopenmpi-dev), configure "
                     "with -DDDL_WITH_MPI=ON and build again");
    case BaselineKind::gloo:
      return require(
          make_gloo_baseline(context),
          "--baseline gloo: this build has no Gloo; install it (Debian: libgloo-dev), configure and "
          "build again");
    case BaselineKind::loop:
      return make_loop_baseline();
    case BaselineKind::threads:
      return make_threads_baseline(team, context.rank());
  }
  return nullptr;
}

}  // namespace perf
