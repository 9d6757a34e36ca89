#pragma once

#include <string_view>
#include <vector>

#include "ddl/broadcast_parameters.hpp"
#include "ddl/context.hpp"

namespace ddl {

/// Collective. Unless all ranks have parameters of the same names and sizes in the same order, every rank
/// throws the same `mismatch`.
void require_same_shapes(Context& context, std::string_view operation,
                         const std::vector<Parameter>& parameters);

/// Collective. The same for their bits as well: "OPERATION: parameter 3 is 'w' of 10 floats with hash 1f...
/// on rank 0, but ...; ADVICE". Reads the parameters once, and reduces 16 bytes over all ranks; only where
/// ranks differ it takes more.
void require_same_bits(Context& context, std::string_view operation, const std::vector<Parameter>& parameters,
                       std::string_view advice);

}  // namespace ddl
