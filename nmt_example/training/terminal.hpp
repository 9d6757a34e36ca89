#pragma once

namespace nmt {

/// Whether what this process prints goes to a terminal that a person looks at. Under mpirun a rank's
/// standard output is a pseudo-terminal of mpirun's whatever happens to it later, so there the
/// launcher's own standard output decides.
bool output_is_terminal();

}  // namespace nmt
