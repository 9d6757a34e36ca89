// Passes libFuzzer's bytes to the reader that DDL_FUZZ_READER names. Without it, prints the readers' names
// and ends.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "fuzz/reader.hpp"

static const ddl::fuzz::Reader* chosen = nullptr;

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  const char* const name = std::getenv("DDL_FUZZ_READER");
  const auto all = ddl::fuzz::readers();
  const auto found = std::ranges::find(all, std::string_view(name ? name : ""), &ddl::fuzz::Reader::name);
  if (found == all.end()) {
    for (const auto& reader : all) std::printf("%s\n", std::string(reader.name).c_str());
    std::exit(name == nullptr ? 0 : 2);
  }
  chosen = &*found;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  chosen->takes({reinterpret_cast<const char*>(data), size});
  return 0;
}
