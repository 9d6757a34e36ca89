#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "ddl/data_type.hpp"

namespace ddl::mpi {

/// What a call's (address, count, type) is to the engine: bytes in a row. Elements of MPI's own types are
/// that where they lie; others are packed beside them, in the order of their type's signature: other ranks
/// may describe the same data by another type. One thread at a time.
class TypedBuffer {
 public:
  /// Nothing for what MPI itself is to refuse: types that are null or not committed, elements of more than
  /// 2 GiB in pieces. `data` may not be MPI_IN_PLACE.
  static std::optional<TypedBuffer> of(const void* data, std::int64_t count, MPI_Datatype type);

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Where the bytes are, or are to be.
  [[nodiscard]] std::byte* data() const noexcept { return packed_ ? packed_.get() : data_; }

  [[nodiscard]] bool is_packed() const noexcept { return packed_ != nullptr; }

  /// Before the bytes are read from `data()`: brings them there.
  void pack();
  /// After the bytes have been written to `data()`: puts them where they belong.
  void unpack();

 private:
  std::byte* data_ = nullptr;
  std::int64_t count_ = 0;
  std::size_t element_bytes_ = 0;
  std::size_t bytes_ = 0;
  std::shared_ptr<MPI_Datatype> type_;  // null: bytes in a row. The user may free his own meanwhile.
  std::shared_ptr<std::byte[]> packed_;

  template <typename Move>
  void each_piece(Move move);
};

/// What one of MPI's reductions is to the engine.
struct Reduction {
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  std::size_t each = 1;  ///< The engine's elements in one of MPI's: 2 for complex numbers.
};

/// Nothing if the engine has no such type or operation: derived types, operations of the user's, bitwise and
/// logical ones, locations, long double, 16-bit integers; unsigned integers but for sums and products, which
/// are the signed ones' bit for bit; complex numbers but for sums.
std::optional<Reduction> reduction_of(MPI_Datatype type, MPI_Op op);

/// Bytes of an element of one of MPI's own types, if they lie without gaps; 0 for all others.
std::size_t plain_bytes(MPI_Datatype type);

}  // namespace ddl::mpi
