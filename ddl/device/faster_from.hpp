#pragma once

#include <cstddef>

#include "ddl/context.hpp"
#include "ddl/device/device_path.hpp"

namespace ddl::device {

/// Times all-reduces of f32, 256 KiB to 64 MiB, by both paths. Returns the least of these sizes from which on
/// `large` was faster on the slowest rank, the same on all ranks; SIZE_MAX if it never was. Takes 128 MiB of
/// device memory for as long as that, and some ten milliseconds. Collective; throws what the paths throw, and
/// `unsupported`, agreed, if the memory is not there.
std::size_t faster_from(Context& context, DevicePath& small, DevicePath& large);

}  // namespace ddl::device
