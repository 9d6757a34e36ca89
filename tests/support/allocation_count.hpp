#pragma once

namespace ddl::test {

/// The number of calls of operator new by all threads so far. Always 0 under a sanitizer, which replaces it.
long allocation_count() noexcept;

}  // namespace ddl::test
