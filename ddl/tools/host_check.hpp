#pragma once

#include <string>

namespace ddl::tools {

struct HostCheckRequest {
  std::string program;  ///< A path, or a name to look for on PATH; empty: not asked for.
  int port = 0;         ///< A TCP port that a job wants to listen on; 0: none.
};

/// What `ddlrun` asks each host of a job: one line of JSON with `ddl_check` (1, the format), `version` of
/// this library, `host` (its name), `identity` (equal only for names of the same host), `cpus` (logical ones
/// that processes may use) and `gpus` (their models, in the system's order). If asked for, also `program`:
/// its `path` and `state` ("executable", or what is wrong with it), and `port`: its `number`, whether it is
/// `free`, and if not the `reason`. Takes as long as `discover_host`.
std::string host_check_json(const HostCheckRequest& request);

}  // namespace ddl::tools
