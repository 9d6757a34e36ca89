#include "nmt_example/backend/packed_products.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "ddl/error.hpp"

namespace nmt::cpu {
namespace {

using dnnl::memory;

memory::desc matrix(std::int64_t rows, std::int64_t cols, std::int64_t row_stride, std::int64_t col_stride) {
  return {{rows, cols}, memory::data_type::f32, memory::dims{row_stride, col_stride}};
}

memory::desc packed(std::int64_t rows, std::int64_t cols) {
  return {{rows, cols}, memory::data_type::f32, memory::format_tag::any};
}

dnnl::matmul::primitive_desc product(const dnnl::engine& engine, const memory::desc& a, const memory::desc& b,
                                     const memory::desc& c, bool accumulate) {
  dnnl::primitive_attr how;
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

template <typename... Values>
std::size_t hash_of(Values... values) {
  std::size_t hash = 0;
  ((hash = (hash ^ static_cast<std::size_t>(values)) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29), ...);
  return hash;
}

/// A parameter's view, as an operand.
struct Operand {
  const void* data;
  std::int64_t rows, cols, stride;
  bool transposed;
  bool operator==(const Operand&) const = default;
};

/// A product's sizes. The layout of its second factor is the operand's.
struct Shape {
  std::int64_t rows, a_stride, c_stride;
  bool accumulate;
  bool operator==(const Shape&) const = default;
};

struct Hash {
  std::size_t operator()(const Operand& x) const {
    return hash_of(reinterpret_cast<std::uintptr_t>(x.data), x.rows, x.cols, x.stride, x.transposed);
  }
  std::size_t operator()(const Shape& x) const {
    return hash_of(x.rows, x.a_stride, x.c_stride, x.accumulate);
  }
};

/// A product that is ready to run, with its first factor and its result still open.
struct Product {
  dnnl::matmul run;
  memory a, c;
};

struct PackedOperand {
  memory values;
  std::uint64_t version = 0;
  std::unordered_map<Shape, Product, Hash> products;
};

}  // namespace

struct PackedProducts::Impl {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::unordered_map<Operand, PackedOperand, Hash> operands;

  Product make_product(PackedOperand& packed_operand, const Operand& operand, const Shape& shape) {
    const std::int64_t inner = operand.transposed ? operand.cols : operand.rows;
    const std::int64_t cols = operand.transposed ? operand.rows : operand.cols;
    const memory::desc a = matrix(shape.rows, inner, shape.a_stride, 1);
    const memory::desc c = matrix(shape.rows, cols, shape.c_stride, 1);
    if (!packed_operand.values) {
      packed_operand.values =
          memory(product(engine, a, packed(inner, cols), c, shape.accumulate).weights_desc(), engine);
    }
    return {dnnl::matmul(product(engine, a, packed_operand.values.get_desc(), c, shape.accumulate)),
            memory(a, engine, nullptr), memory(c, engine, nullptr)};
  }

  void pack(PackedOperand& packed_operand, const Operand& operand) {
    const memory::desc plain = operand.transposed ? matrix(operand.cols, operand.rows, 1, operand.stride)
                                                  : matrix(operand.rows, operand.cols, operand.stride, 1);
    memory from(plain, engine, const_cast<void*>(operand.data));
    dnnl::reorder(from, packed_operand.values).execute(stream, from, packed_operand.values);
  }
};

PackedProducts::PackedProducts() : impl_(std::make_unique<Impl>()) {}
PackedProducts::~PackedProducts() = default;

void PackedProducts::multiply(const Tensor& a, Transpose tb, const Tensor& parameter, bool accumulate,
                              const Tensor& c) {
  const Operand operand{parameter.data, parameter.rows, parameter.cols, parameter.stride,
                        tb == Transpose::yes};
  const Shape shape{a.rows, a.stride, c.stride, accumulate};
  try {
    PackedOperand& packed_operand = impl_->operands[operand];
    auto found = packed_operand.products.find(shape);
    if (found == packed_operand.products.end()) {
      found =
          packed_operand.products.emplace(shape, impl_->make_product(packed_operand, operand, shape)).first;
    }
    if (packed_operand.version != version_) {
      impl_->pack(packed_operand, operand);
      packed_operand.version = version_;
    }
    Product& product = found->second;
    product.a.set_data_handle(a.data);
    product.c.set_data_handle(c.data);
    product.run.execute(
        impl_->stream,
        {{DNNL_ARG_SRC, product.a}, {DNNL_ARG_WEIGHTS, packed_operand.values}, {DNNL_ARG_DST, product.c}});
  } catch (const dnnl::error& error) {
    throw ddl::Error(ddl::ErrorCode::internal,
                     fmt::format("oneDNN's product of {} x {} with a packed {} x {} failed: {}", a.rows,
                                 a.cols, parameter.rows, parameter.cols, error.what()));
  }
}

double product_rate(std::int64_t rows, std::int64_t cols, std::int64_t inner) {
  using Clock = std::chrono::steady_clock;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const auto how =
      product(engine, matrix(rows, inner, inner, 1), packed(inner, cols), matrix(rows, cols, cols, 1), false);
  dnnl::matmul run(how);
  memory a(how.src_desc(), engine), b(how.weights_desc(), engine), c(how.dst_desc(), engine);
  for (const memory* x : {&a, &b, &c})
    std::fill_n(static_cast<float*>(x->get_data_handle()), x->get_desc().get_size() / sizeof(float), 0.5f);
  double best = 0;
  constexpr double enough = 0.02;
  double spent = 0;
  for (int call = 0; call < 4 || (spent < enough && call < 1000); ++call) {
    const auto begin = Clock::now();
    run.execute(stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
    stream.wait();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    spent += seconds;
    const double flops =
        2.0 * static_cast<double>(rows) * static_cast<double>(cols) * static_cast<double>(inner);
    if (call > 0) best = std::max(best, flops / seconds);
  }
  return best;
}

}  // namespace nmt::cpu
