#include "nmt_example/backend/products.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <dnnl.hpp>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ddl/error.hpp"
#include "nmt_example/backend/cpu_memory.hpp"
#include "nmt_example/backend/cpu_rows.hpp"

namespace nmt::cpu {
namespace {

using dnnl::memory;

memory::data_type type_of(ddl::DataType type) {
  return type == ddl::DataType::f32 ? memory::data_type::f32 : memory::data_type::bf16;
}

/// op(x), as oneDNN sees it.
memory::desc described(const Tensor& x, Transpose t) {
  if (t == Transpose::no) return {{x.rows, x.cols}, type_of(x.type), memory::dims{x.stride, 1}};
  return {{x.cols, x.rows}, type_of(x.type), memory::dims{1, x.stride}};
}

dnnl::matmul::primitive_desc product(const dnnl::engine& engine, const memory::desc& a, const memory::desc& b,
                                     const memory::desc& c, bool accumulate) {
  dnnl::primitive_attr how;
  how.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    how.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, c, how};
#else
  return {dnnl::matmul::desc(a, b, c), how, engine};
#endif
}

/// The stride of a copy's rows, an odd number of cache lines. Where it is a multiple of a power of two, the
/// elements of a column share few places of the cache: products took up to twice as long.
std::int64_t padded_stride(std::int64_t cols, ddl::DataType type) {
  const std::int64_t line = 64 / static_cast<std::int64_t>(ddl::size_of(type));
  return ((cols + line - 1) / line | 1) * line;
}

/// The layout that oneDNN wants of b, or row by row with padding where it has no layout of its own.
memory::desc packed(const dnnl::engine& engine, const memory::desc& a, std::int64_t rows, std::int64_t cols,
                    ddl::DataType type, const memory::desc& c, bool accumulate) {
  const auto laid_out = [&](auto layout) { return memory::desc({rows, cols}, type_of(type), layout); };
  const memory::desc best =
      product(engine, a, laid_out(memory::format_tag::any), c, accumulate).weights_desc();
  const bool plain = best == laid_out(memory::format_tag::ab) || best == laid_out(memory::format_tag::ba);
  return plain ? laid_out(memory::dims{padded_stride(cols, type), 1}) : best;
}

template <typename... Values>
std::size_t hash_of(Values... values) {
  std::size_t hash = 0;
  ((hash = (hash ^ static_cast<std::size_t>(values)) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29), ...);
  return hash;
}

/// A matrix without its memory.
struct Matrix {
  std::int64_t rows, cols, stride;
  ddl::DataType type;
  bool transposed;

  Matrix(const Tensor& x, Transpose t)
      : rows(x.rows), cols(x.cols), stride(x.stride), type(x.type), transposed(t == Transpose::yes) {}
  bool operator==(const Matrix&) const = default;
  [[nodiscard]] std::size_t hash() const { return hash_of(rows, cols, stride, type, transposed); }
};

struct Key {
  Matrix a, b, c;
  bool accumulate;
  bool operator==(const Key&) const = default;
};

/// A parameter in the type of its products' other factor.
struct ParameterKey {
  const void* data;
  Matrix matrix;
  bool operator==(const ParameterKey&) const = default;
};

struct Hash {
  std::size_t operator()(const Key& x) const {
    return hash_of(x.a.hash(), x.b.hash(), x.c.hash(), x.accumulate);
  }
  std::size_t operator()(const ParameterKey& x) const {
    return hash_of(reinterpret_cast<std::uintptr_t>(x.data), x.matrix.hash());
  }
};

/// A product that is ready to run, with its matrices still open.
struct Product {
  dnnl::matmul run;
  memory a, b, c, scratch;
  std::optional<dnnl::reorder> transposing = {};  ///< Of a first, which is faster than to read it so.
};

struct Parameter {
  memory values;  // in the memory of copies, from `begin` to `end`, if it is there
  std::size_t begin = 0, end = 0;
  bool is_there = false;
  std::uint64_t version = 0;  // of the parameters, when it was last made
  std::unordered_map<Key, Product, Hash> products;
};

/// Memory in which copies of parameters take turns: a step that goes through the layers one by one needs few
/// at a time. They follow each other in a ring, in the order in which they are made.
class Copies {
 public:
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// The parameters have other values now.
  void forget() noexcept {
    drop_all();
    ++version_;
  }
  /// Gives a copy that is not there its place, which may be that of others.
  void place(Parameter& copy) {
    constexpr std::size_t alignment = 64;
    const std::size_t size = (copy.values.get_desc().get_size() + alignment - 1) / alignment * alignment;
    // A copy that has lost its place to others of the same values takes turns with them within a step.
    const bool has_lost = copy.version == version_;
    if (has_lost || size > bytes_) grow(has_lost ? bytes_ + size : size);
    if (at_ + size > bytes_) at_ = 0;
    std::erase_if(there_, [&](Parameter* other) {
      const bool overlaps = other->begin < at_ + size && at_ < other->end;
      if (overlaps) other->is_there = false;
      return overlaps;
    });
    copy.begin = at_;
    copy.end = at_ += size;
    copy.values.set_data_handle(static_cast<std::byte*>(memory_.get()) + copy.begin);
    copy.is_there = true;
    copy.version = version_;
    there_.push_back(&copy);
  }

 private:
  void grow(std::size_t bytes) {
    for (Parameter* const other : there_) other->version = 0;
    drop_all();
    memory_.reset();
    memory_ = zeroed_memory(bytes);
    bytes_ = bytes;
  }
  void drop_all() noexcept {
    for (Parameter* const other : there_) other->is_there = false;
    there_.clear();
    at_ = 0;
  }

  std::shared_ptr<void> memory_;
  std::size_t bytes_ = 0, at_ = 0;
  std::vector<Parameter*> there_;
  std::uint64_t version_ = 1;
};

/// A dense fp32 copy; 16-bit values as they are, fp32 ones rounded to bf16.
Tensor rounded_copy(const Tensor& x, std::vector<float>& memory) {
  memory.resize(static_cast<std::size_t>(x.size()));
  std::vector<std::uint16_t> row(static_cast<std::size_t>(x.cols));
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const std::uint16_t* from = row.data();
    if (x.type == ddl::DataType::f32) {
      narrow(x.as<float>() + r * x.stride, row.data(), x.cols);
    } else {
      from = x.as<std::uint16_t>() + r * x.stride;
    }
    widen(from, memory.data() + r * x.cols, x.cols);
  }
  return {memory.data(), x.rows, x.cols, x.cols, ddl::DataType::f32};
}

}  // namespace

bool has_fast_bf16() { return dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_bf16; }

struct Products::Impl {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::unordered_map<Key, Product, Hash> plain;
  std::unordered_map<ParameterKey, Parameter, Hash> parameters;
  Copies copies;
  const bool emulated = !has_fast_bf16();
  std::vector<float> a_copy, b_copy, sums;
  std::vector<std::uint16_t> transposed;
  std::shared_ptr<void> scratch;  // of the product that runs
  std::size_t scratch_bytes = 0;

  Product prepared(const memory::desc& a, const memory::desc& b, const memory::desc& c, bool accumulate) {
    const auto how = product(engine, a, b, c, accumulate);
    return {dnnl::matmul(how), memory(a, engine, nullptr), memory(b, engine, nullptr),
            memory(c, engine, nullptr), memory(how.scratchpad_desc(), engine, nullptr)};
  }

  [[nodiscard]] std::size_t bytes() const noexcept {
    return copies.bytes() + scratch_bytes + transposed.size() * sizeof(std::uint16_t);
  }

  void* scratch_of(std::size_t bytes) {
    if (bytes > scratch_bytes) {
      scratch.reset();
      scratch = zeroed_memory(bytes);
      scratch_bytes = bytes;
    }
    return scratch.get();
  }

  Product prepared(Transpose ta, Transpose tb, const Tensor& a, const Tensor& b, bool accumulate,
                   const Tensor& c) {
    constexpr std::int64_t large = 256;
    const memory::desc y = described(b, tb), z = described(c, Transpose::no);
    if (ta == Transpose::no || a.rows < large || a.cols < large || b.cols < large) {
      return prepared(described(a, ta), y, z, accumulate);
    }
    const Tensor copy(nullptr, a.cols, a.rows, padded_stride(a.rows, a.type), a.type);
    Product product = prepared(described(copy, Transpose::no), y, z, accumulate);
    memory from(described(a, ta), engine, nullptr);
    product.transposing.emplace(from, product.a);
    return product;
  }

  void run(Product& product, const Tensor& a, void* b, const Tensor& c) {
    if (product.transposing) {
      const auto size = static_cast<std::size_t>(a.cols * padded_stride(a.rows, a.type));
      transposed.resize(std::max(transposed.size(), size));
      memory from(described(a, Transpose::yes), engine, a.data);
      product.a.set_data_handle(transposed.data());
      product.transposing->execute(stream, from, product.a);
    } else {
      product.a.set_data_handle(a.data);
    }
    product.b.set_data_handle(b);
    product.c.set_data_handle(c.data);
    product.scratch.set_data_handle(scratch_of(product.scratch.get_desc().get_size()));
    product.run.execute(stream, {{DNNL_ARG_SRC, product.a},
                                 {DNNL_ARG_WEIGHTS, product.b},
                                 {DNNL_ARG_DST, product.c},
                                 {DNNL_ARG_SCRATCHPAD, product.scratch}});
  }

  void multiply(Transpose ta, Transpose tb, const Tensor& a, const Tensor& b, bool accumulate,
                const Tensor& c) {
    const Key key{{a, ta}, {b, tb}, {c, Transpose::no}, accumulate};
    auto found = plain.find(key);
    if (found == plain.end()) found = plain.emplace(key, prepared(ta, tb, a, b, accumulate, c)).first;
    run(found->second, a, b.data, c);
  }

  void multiply_packed(const Tensor& a, Transpose tb, const Tensor& parameter, bool accumulate,
                       const Tensor& c) {
    Tensor typed = parameter;
    typed.type = a.type;
    Parameter& packed_parameter = parameters[{parameter.data, {typed, tb}}];
    const Key key{{a, Transpose::no}, {typed, tb}, {c, Transpose::no}, accumulate};
    auto found = packed_parameter.products.find(key);
    if (found == packed_parameter.products.end()) {
      const memory::desc x = described(a, Transpose::no), z = described(c, Transpose::no);
      if (!packed_parameter.values) {
        packed_parameter.values =
            memory(packed(engine, x, a.cols, c.cols, a.type, z, accumulate), engine, nullptr);
      }
      found = packed_parameter.products
                  .emplace(key, prepared(x, packed_parameter.values.get_desc(), z, accumulate))
                  .first;
    }
    if (!packed_parameter.is_there) pack(packed_parameter, parameter, tb);
    run(found->second, a, packed_parameter.values.get_data_handle(), c);
  }

  void emulate(Transpose ta, Transpose tb, const Tensor& a, const Tensor& b, bool accumulate,
               const Tensor& c) {
    const Tensor x = rounded_copy(a, a_copy), y = rounded_copy(b, b_copy);
    sums.resize(static_cast<std::size_t>(c.size()));
    const Tensor z(sums.data(), c.rows, c.cols, c.cols, ddl::DataType::f32);
    const auto letter = [](Transpose t) { return t == Transpose::yes ? 'T' : 'N'; };
    const std::int64_t inner = ta == Transpose::yes ? a.rows : a.cols;
    if (dnnl_sgemm(letter(ta), letter(tb), c.rows, c.cols, inner, 1.0f, x.as<float>(), x.stride,
                   y.as<float>(), y.stride, 0.0f, z.as<float>(), z.stride) != dnnl_success) {
      throw dnnl::error(dnnl_runtime_error, "sgemm failed");
    }
    Rows& rows = rows_of_thread();
    for (std::int64_t r = 0; r < c.rows; ++r) {
      float* const to = accumulate ? rows.edit(c, r, 0) : rows.write(c, r, 0);
      if (!accumulate) std::fill_n(to, c.cols, 0.0f);
      add(to, z.as<float>() + r * c.cols, c.cols);
      rows.put(c, r, 0);
    }
  }

  void pack(Parameter& packed, const Tensor& parameter, Transpose t) {
    copies.place(packed);
    memory from(described(parameter, t), engine, parameter.data);
    dnnl::reorder(from, packed.values).execute(stream, from, packed.values);
  }
};

Products::Products() : impl_(std::make_unique<Impl>()) {}
Products::~Products() = default;

void Products::forget() noexcept { impl_->copies.forget(); }

std::size_t Products::bytes() const noexcept { return impl_->bytes(); }

namespace {

/// Calls f(begin, count) for a multiple of 256 and for the rest. Batches have many lengths, and each prepared
/// product keeps its own code: some 100 kB.
template <typename F>
void in_parts(std::int64_t size, F f) {
  constexpr std::int64_t part = 256;
  const std::int64_t whole = size / part * part;
  if (whole > 0) f(std::int64_t{0}, whole);
  if (whole < size) f(whole, size - whole);
}

/// Calls f(begin, count) for parts of a result's rows. Where it has 16 bits, oneDNN keeps its fp32 sums in
/// memory twice, and those of a large vocabulary's gradient would be the largest block of a step.
template <typename F>
void in_row_parts(const Tensor& c, F f) {
  constexpr std::int64_t most_sums = std::int64_t{1} << 22, alignment = 64;
  const std::int64_t part =
      c.type == ddl::DataType::f32 ? c.rows : std::max(alignment, most_sums / c.cols / alignment * alignment);
  for (std::int64_t begin = 0; begin < c.rows; begin += part) f(begin, std::min(part, c.rows - begin));
}

/// Throws oneDNN's error with the sizes.
template <typename F>
void naming_sizes(const Tensor& a, const Tensor& b, F f) {
  try {
    f();
  } catch (const dnnl::error& error) {
    throw ddl::Error(ddl::ErrorCode::internal,
                     fmt::format("oneDNN's product of {} x {} with {} x {} failed: {}", a.rows, a.cols,
                                 b.rows, b.cols, error.what()));
  }
}

}  // namespace

void Products::multiply(Transpose ta, Transpose tb, const Tensor& a, const Tensor& b, bool accumulate,
                        const Tensor& c) {
  naming_sizes(a, b, [&] {
    if (impl_->emulated) return impl_->emulate(ta, tb, a, b, accumulate, c);
    if (ta == Transpose::no) {
      return in_parts(a.rows, [&](std::int64_t begin, std::int64_t count) {
        impl_->multiply(ta, tb, a.row_range(begin, count), b, accumulate, c.row_range(begin, count));
      });
    }
    in_parts(a.rows, [&](std::int64_t begin, std::int64_t count) {
      const Tensor x = a.row_range(begin, count);
      const Tensor y = tb == Transpose::no ? b.row_range(begin, count) : b.col_range(begin, count);
      in_row_parts(c, [&](std::int64_t first, std::int64_t rows) {
        impl_->multiply(ta, tb, x.col_range(first, rows), y, accumulate || begin > 0,
                        c.row_range(first, rows));
      });
    });
  });
}

void Products::multiply_packed(const Tensor& a, Transpose tb, const Tensor& parameter, bool accumulate,
                               const Tensor& c) {
  naming_sizes(a, parameter, [&] {
    if (impl_->emulated && a.type != ddl::DataType::f32) {
      return impl_->emulate(Transpose::no, tb, a, parameter, accumulate, c);
    }
    in_parts(a.rows, [&](std::int64_t begin, std::int64_t count) {
      impl_->multiply_packed(a.row_range(begin, count), tb, parameter, accumulate, c.row_range(begin, count));
    });
  });
}

double product_rate(std::int64_t rows, std::int64_t cols, std::int64_t inner, ddl::DataType type) {
  using Clock = std::chrono::steady_clock;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const Tensor x(nullptr, rows, inner, inner, type), z(nullptr, rows, cols, cols, type);
  const memory::desc left = described(x, Transpose::no), result = described(z, Transpose::no);
  const auto how =
      product(engine, left, packed(engine, left, inner, cols, type, result, false), result, false);
  dnnl::matmul run(how);
  memory a(how.src_desc(), engine), b(how.weights_desc(), engine), c(how.dst_desc(), engine),
      scratch(how.scratchpad_desc(), engine);
  for (const memory* m : {&a, &b, &c}) {
    std::fill_n(static_cast<std::byte*>(m->get_data_handle()), m->get_desc().get_size(), std::byte{0});
  }
  double best = 0;
  constexpr double enough = 0.02;
  double spent = 0;
  for (int call = 0; call < 4 || (spent < enough && call < 1000); ++call) {
    const auto begin = Clock::now();
    run.execute(
        stream,
        {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}, {DNNL_ARG_SCRATCHPAD, scratch}});
    stream.wait();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    spent += seconds;
    const double flops =
        2.0 * static_cast<double>(rows) * static_cast<double>(cols) * static_cast<double>(inner);
    if (call > 0) best = std::max(best, flops / seconds);
  }
  return best;
}

double speed_of_bf16() {
  if (!has_fast_bf16()) return 0;
  const auto rate = [](ddl::DataType type) { return product_rate(256, 1024, 512, type); };
  return rate(ddl::DataType::bf16) / rate(ddl::DataType::f32);
}

}  // namespace nmt::cpu
