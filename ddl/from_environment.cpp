#include "ddl/connect.hpp"
#include "ddl/context_state.hpp"

namespace ddl {

Context Context::from_environment() { return from_environment(ContextOptions::from_environment()); }

Context Context::from_environment(const ContextOptions& options) {
  const Neighbourhood alone{{options.host_id.empty() ? "localhost" : options.host_id}, false};
  auto impl =
      std::make_shared<collectives::CommunicatorImpl>(communicator_settings(options, 0, alone), nullptr);
  return Context(std::make_unique<State>(options, nullptr, std::move(impl)));
}

}  // namespace ddl
