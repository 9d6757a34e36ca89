#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "ddl/data_type.hpp"
#include "ddl/topology/as_index.hpp"

namespace ddl::mpi {

/// Presents a call's (address, count, type) to the engine as contiguous bytes. Elements of predefined types
/// without gaps are used in place; others are packed into a separate buffer in the order of their type
/// signature, because other ranks may describe the same data by another type. The type must outlive this.
class TypedBuffer {
 public:
  /// Returns nothing for types that MPI refuses or whose size exceeds 2 GiB. `data` must not be MPI_IN_PLACE.
  /// `plain`: `plain_bytes(type)`.
  static std::optional<TypedBuffer> of(const void* data, std::int64_t count, MPI_Datatype type,
                                       std::size_t plain) {
    // `data` is written to only by `unpack`.
    TypedBuffer buffer(static_cast<std::byte*>(const_cast<void*>(data)), count, type, plain);
    if (plain == 0 && !buffer.gather()) return std::nullopt;
    return buffer;
  }

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// The packed bytes, or the user's memory if nothing is packed.
  [[nodiscard]] std::byte* data() const noexcept { return packed_ ? packed_.get() : data_; }

  /// Copies the user's elements to `data()`. To be called before reading `data()`.
  void pack() {
    if (packed_) pack_all();
  }
  /// Copies `data()` to the user's elements. To be called after writing `data()`.
  void unpack() {
    if (packed_) unpack_all();
  }

 private:
  TypedBuffer(std::byte* data, std::int64_t count, MPI_Datatype type, std::size_t element_bytes)
      : data_(data),
        count_(count),
        element_bytes_(element_bytes),
        bytes_(as_index(count) * element_bytes),
        type_(type) {}

  std::byte* data_;
  std::int64_t count_;
  std::size_t element_bytes_;
  std::size_t bytes_;
  MPI_Datatype type_;
  std::unique_ptr<std::byte[]> packed_;  // null: the elements are contiguous

  bool gather();
  void pack_all();
  void unpack_all();
  template <typename Move>
  void each_piece(Move move);
};

/// The engine's form of an MPI reduction.
struct Reduction {
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  std::size_t each = 1;  ///< Engine elements in an MPI element: 2 for complex numbers.
};

/// Returns nothing for types and operations that the engine lacks: derived types, long double, 16-bit
/// integers; user-defined, bitwise, logical and location operations. Unsigned integers of 32 and 64 bits and
/// signed bytes have only sums and products, which have the same bits as those of the other signedness;
/// complex numbers have only sums.
std::optional<Reduction> reduction_of(MPI_Datatype type, MPI_Op op);

/// The size in bytes of an element of a predefined type without gaps; 0 for all other types.
std::size_t plain_bytes(MPI_Datatype type);

}  // namespace ddl::mpi
