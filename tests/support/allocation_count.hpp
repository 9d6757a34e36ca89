#pragma once

namespace ddl::test {

/// Calls of operator new by all threads so far. Always 0 under a sanitizer, which has its own.
long allocation_count() noexcept;

}  // namespace ddl::test
