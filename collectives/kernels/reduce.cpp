#include "collectives/kernels/reduce.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "collectives/kernels/kernel_table.hpp"
#include "collectives/system/processor.hpp"

#if defined(DDL_X86_KERNELS)
#include <cpuid.h>
#endif

namespace ddl::collectives {
namespace {

static_assert(static_cast<std::size_t>(DataType::u8) == 0 && static_cast<std::size_t>(DataType::i32) == 1 &&
              static_cast<std::size_t>(DataType::i64) == 2 && static_cast<std::size_t>(DataType::f32) == 3 &&
              static_cast<std::size_t>(DataType::f64) == 4 && static_cast<std::size_t>(DataType::f16) == 5 &&
              static_cast<std::size_t>(DataType::bf16) == 6);
static_assert(static_cast<std::size_t>(ReduceOp::sum) == 0 && static_cast<std::size_t>(ReduceOp::avg) == 1 &&
              static_cast<std::size_t>(ReduceOp::min) == 2 && static_cast<std::size_t>(ReduceOp::max) == 3 &&
              static_cast<std::size_t>(ReduceOp::prod) == 4);

#if defined(DDL_X86_KERNELS)

InstructionSet find_instruction_set() noexcept {
  __builtin_cpu_init();  // covers what the operating system saves, too
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  if (!f16c || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    return InstructionSet::baseline;
  }
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return avx512 ? InstructionSet::avx512 : InstructionSet::avx2;
}

/// Whether the processor says that its `rep movsb` is fast ("ERMS").
bool has_fast_rep_movsb() noexcept {
  constexpr unsigned extended_features = 7;
  constexpr unsigned erms = 1U << 9;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid_count(extended_features, 0, &a, &b, &c, &d) != 0 && (b & erms) != 0;
}

/// Copies with `rep movsb` if no processor is known to be slow at it: from the first cache line of `to` on,
/// and if the buffers' places in their pages are the same, or differ by 512 bytes at least. Returns false
/// otherwise.
bool copied_by_rep_movsb(void* to, const void* from, std::size_t bytes) noexcept {
  constexpr std::uintptr_t page = 4096;
  constexpr std::uintptr_t least_apart = 512;
  static const bool is_fast = has_fast_rep_movsb();
  const auto target = reinterpret_cast<std::uintptr_t>(to);
  const std::uintptr_t apart = (target - reinterpret_cast<std::uintptr_t>(from)) % page;
  if (!is_fast || (apart != 0 && (apart < least_apart || apart > page - least_apart))) return false;
  const std::size_t head = (cache_line - target % cache_line) % cache_line;
  std::memcpy(to, from, head);
  to = static_cast<std::byte*>(to) + head;
  from = static_cast<const std::byte*>(from) + head;
  bytes -= head;
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
  return true;
}

#else
InstructionSet find_instruction_set() noexcept { return InstructionSet::baseline; }
bool copied_by_rep_movsb(void*, const void*, std::size_t) noexcept { return false; }
#endif

/// Where memmove may be slow: see `copy_bytes`. Smaller and larger copies it makes with vectors, too.
constexpr std::size_t least_slow = std::size_t{4} << 10;
constexpr std::size_t most_slow = std::size_t{8} << 20;
/// From here on, `rep movsb` copies up to 1.8 times as fast as vectors (Zen 5), or as fast (Zen 3, as others
/// have measured).
constexpr std::size_t least_by_rep_movsb = std::size_t{32} << 10;

bool has_slow_memmove() noexcept {
#if defined(DDL_X86_KERNELS)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

bool overlap(const void* a, const void* b, std::size_t bytes) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(a);
  const auto second = reinterpret_cast<std::uintptr_t>(b);
  return (first > second ? first - second : second - first) < bytes;
}

/// Copies to all targets while a piece is in the core's cache.
void copy_to_all(std::span<std::byte* const> targets, const std::byte* input, std::size_t bytes) noexcept {
  const std::size_t piece = targets.size() == 1 ? bytes : std::size_t{16} << 10;
  for (std::size_t at = 0; at < bytes; at += piece) {
    const std::size_t length = std::min(piece, bytes - at);
    for (std::byte* target : targets) {
      if (target != input) copy_bytes(target + at, input + at, length);
    }
  }
}

/// Targets from this size on are assumed to leave the caches before anyone reads them.
constexpr std::size_t streaming_bytes = std::size_t{8} << 20;

bool wants_streaming(Stores stores, std::size_t bytes) noexcept {
  return stores == Stores::streaming || (stores == Stores::automatic && bytes >= streaming_bytes);
}

/// Whether the conditions of `Operands::streaming` hold.
bool can_stream(std::span<std::byte* const> targets, std::span<const std::byte* const> inputs,
                std::size_t element) noexcept {
  const auto place = [](const std::byte* address) { return reinterpret_cast<std::uintptr_t>(address) % 64; };
  return std::all_of(targets.begin(), targets.end(), [&](std::byte* target) {
    return place(target) == place(targets[0]) && place(target) % element == 0 &&
           std::find(inputs.begin(), inputs.end(), target) == inputs.end();
  });
}

[[gnu::always_inline]] inline void reduce_with(const KernelTable& table, DataType type, ReduceOp op,
                                               std::span<std::byte* const> targets,
                                               std::span<const std::byte* const> inputs, std::size_t count,
                                               int divisor, Stores stores) noexcept {
  const std::size_t bytes = count * size_of(type);
  if (bytes == 0) return;
  const bool divides = op == ReduceOp::avg && divisor > 1;
  if (inputs.size() == 1 && !divides) return copy_to_all(targets, inputs[0], bytes);
  const ReduceOp kind = op == ReduceOp::avg && !divides ? ReduceOp::sum : op;
  table.kernels[static_cast<std::size_t>(type)][static_cast<std::size_t>(kind)](
      {targets.data(), targets.size(), inputs.data(), inputs.size(), bytes, divisor,
       wants_streaming(stores, bytes * targets.size()) && can_stream(targets, inputs, size_of(type))});
}

const WireKernels& wire_kernels(DataType type) noexcept {
  return kernels_of(native_instruction_set()).wire[static_cast<std::size_t>(type)];
}

}  // namespace

std::string_view to_string(InstructionSet set) noexcept {
  constexpr std::array<std::string_view, 3> names = {"baseline", "avx2", "avx512"};
  return names[static_cast<std::size_t>(set)];
}

const KernelTable& kernels_of([[maybe_unused]] InstructionSet set) noexcept {
#if defined(DDL_X86_KERNELS)
  if (set == InstructionSet::avx512) return avx512_kernels();
  if (set == InstructionSet::avx2) return avx2_kernels();
#endif
  return baseline_kernels();
}

InstructionSet native_instruction_set() noexcept {
  static const InstructionSet set = find_instruction_set();
  return set;
}

void reduce(DataType type, ReduceOp op, std::span<std::byte* const> targets,
            std::span<const std::byte* const> inputs, std::size_t count, int divisor,
            Stores stores) noexcept {
  static const KernelTable& table = kernels_of(native_instruction_set());
  reduce_with(table, type, op, targets, inputs, count, divisor, stores);
}

void reduce_with(InstructionSet set, DataType type, ReduceOp op, std::span<std::byte* const> targets,
                 std::span<const std::byte* const> inputs, std::size_t count, int divisor,
                 Stores stores) noexcept {
  reduce_with(kernels_of(set), type, op, targets, inputs, count, divisor, stores);
}

void copy_bytes(void* to, const void* from, std::size_t bytes, CopyBy by) noexcept {
  static const bool is_slow = has_slow_memmove();
  if (!is_slow || bytes < least_slow || bytes > most_slow || overlap(to, from, bytes)) {
    std::memmove(to, from, bytes);
    return;
  }
  const bool wants_rep_movsb = bytes >= least_by_rep_movsb && by == CopyBy::any;
  if (wants_rep_movsb && copied_by_rep_movsb(to, from, bytes)) return;
  copy_bytes_with(native_instruction_set(), to, from, bytes);
}

void copy_to_peer(void* to, const void* from, std::size_t bytes) noexcept {
  constexpr std::size_t least = std::size_t{2} << 10;  // below, `rep movsb` takes longer to begin
  if (bytes < least || !copied_by_rep_movsb(to, from, bytes)) copy_bytes(to, from, bytes);
}

void copy_streaming(void* to, const void* from, std::size_t bytes) noexcept {
  if (bytes < 2 * cache_line) return copy_bytes(to, from, bytes);
  copy_bytes_with(native_instruction_set(), to, from, bytes, true);
}

void copy_bytes_with(InstructionSet set, void* to, const void* from, std::size_t bytes,
                     bool streaming) noexcept {
  const KernelTable& table = kernels_of(set);
  const auto copy = streaming ? table.copy_streaming : table.copy;
  copy(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
}

void round_to(DataType type, const Rounding& rounding, std::size_t count) noexcept {
  wire_kernels(type).round(rounding, count);
}

void narrow(DataType type, std::span<const float> values, std::byte* packed) noexcept {
  wire_kernels(type).narrow(values.data(), reinterpret_cast<std::uint16_t*>(packed), values.size());
}

void widen(DataType type, const std::byte* packed, std::span<float> values) noexcept {
  wire_kernels(type).widen(reinterpret_cast<const std::uint16_t*>(packed), values.data(), values.size());
}

}  // namespace ddl::collectives
