#pragma once

#include <cstddef>

#include "ddl/context.hpp"

namespace ddl {

/// Bytes of a bucket for gradients of `total` bytes: the fewest whose all-reduce is predicted to cost at most
/// 5% more a byte than the best does, between 16 KiB and a twentieth of the total, so that what cannot be
/// hidden behind backward, the last bucket, is small. All in one, where that takes less than 0.1 ms. The same
/// on all ranks. Collective.
std::size_t chosen_bucket_bytes(Context& context, std::size_t total);

}  // namespace ddl
