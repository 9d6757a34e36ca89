#include "ddl/mpi_interposer/typed_buffer.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <vector>

#include "ddl/error.hpp"
#include "ddl/topology/as_index.hpp"

namespace ddl::mpi {
namespace {

void check(int result, const char* call) {
  if (result != MPI_SUCCESS)
    throw Error(ErrorCode::invalid_argument, std::string(call) + " refused a datatype");
}

/// The reductions that the engine supports for a type.
enum class Arithmetic { all, sums_and_products, sums };

struct KnownType {
  MPI_Datatype type;
  DataType element;
  std::size_t each;
  Arithmetic arithmetic;
};

bool before(MPI_Datatype a, MPI_Datatype b) { return std::less<>()(a, b); }

/// The supported types, sorted by handle.
std::vector<KnownType> make_known_types() {
  struct Family {
    DataType element;
    std::size_t each;
    Arithmetic arithmetic;
    std::vector<MPI_Datatype> types;
  };
  const std::vector<MPI_Datatype> integers = {MPI_INT,     MPI_LONG,    MPI_LONG_LONG_INT, MPI_INT32_T,
                                              MPI_INT64_T, MPI_INTEGER, MPI_INTEGER4,      MPI_INTEGER8,
                                              MPI_AINT,    MPI_OFFSET,  MPI_COUNT};
  const std::vector<MPI_Datatype> naturals = {MPI_UNSIGNED, MPI_UNSIGNED_LONG, MPI_UNSIGNED_LONG_LONG,
                                              MPI_UINT32_T, MPI_UINT64_T};
  const std::vector<MPI_Datatype> complex_floats = {MPI_C_FLOAT_COMPLEX, MPI_CXX_FLOAT_COMPLEX, MPI_COMPLEX,
                                                    MPI_COMPLEX8};
  const std::vector<MPI_Datatype> complex_doubles = {MPI_C_DOUBLE_COMPLEX, MPI_CXX_DOUBLE_COMPLEX,
                                                     MPI_DOUBLE_COMPLEX, MPI_COMPLEX16};
  const std::vector<Family> families = {
      {DataType::f32, 1, Arithmetic::all, {MPI_FLOAT, MPI_REAL, MPI_REAL4}},
      {DataType::f64, 1, Arithmetic::all, {MPI_DOUBLE, MPI_DOUBLE_PRECISION, MPI_REAL8}},
      {DataType::i32, 1, Arithmetic::all, integers},
      {DataType::i64, 1, Arithmetic::all, integers},
      {DataType::i32, 1, Arithmetic::sums_and_products, naturals},
      {DataType::i64, 1, Arithmetic::sums_and_products, naturals},
      {DataType::u8, 1, Arithmetic::all, {MPI_UNSIGNED_CHAR, MPI_UINT8_T}},
      {DataType::u8, 1, Arithmetic::sums_and_products, {MPI_SIGNED_CHAR, MPI_INT8_T, MPI_INTEGER1}},
      {DataType::f32, 2, Arithmetic::sums, complex_floats},
      {DataType::f64, 2, Arithmetic::sums, complex_doubles},
  };
  std::vector<KnownType> known;
  for (const auto& [element, each, arithmetic, types] : families) {
    for (const MPI_Datatype type : types) {
      // A type may be listed in two families; its size decides. Fortran's types have no size if MPI was built
      // without Fortran.
      int bytes = 0;
      if (type == MPI_DATATYPE_NULL || PMPI_Type_size(type, &bytes) != MPI_SUCCESS) continue;
      if (bytes == static_cast<int>(each * size_of(element)))
        known.push_back({type, element, each, arithmetic});
    }
  }
  std::ranges::sort(known, before, &KnownType::type);
  return known;
}

const KnownType* find(MPI_Datatype type) {
  static const std::vector<KnownType> known = make_known_types();
  // Most programs call with one type again and again.
  static std::atomic<const KnownType*> last = known.data();
  const KnownType* const guess = last.load(std::memory_order_relaxed);
  if (guess->type == type) return guess;
  const auto found = std::ranges::lower_bound(known, type, before, &KnownType::type);
  if (found == known.end() || found->type != type) return nullptr;
  last.store(&*found, std::memory_order_relaxed);
  return &*found;
}

std::optional<ReduceOp> op_of(MPI_Op op) {
  if (op == MPI_SUM) return ReduceOp::sum;
  if (op == MPI_PROD) return ReduceOp::prod;
  if (op == MPI_MAX) return ReduceOp::max;
  if (op == MPI_MIN) return ReduceOp::min;
  return std::nullopt;
}

bool allows(Arithmetic arithmetic, ReduceOp op) {
  if (arithmetic == Arithmetic::all || op == ReduceOp::sum) return true;
  return arithmetic == Arithmetic::sums_and_products && op == ReduceOp::prod;
}

}  // namespace

/// Makes room for the packed elements. Returns false for types that have no size.
bool TypedBuffer::gather() {
  int size = 0;
  if (type_ == MPI_DATATYPE_NULL || PMPI_Type_size(type_, &size) != MPI_SUCCESS || size == MPI_UNDEFINED) {
    return false;
  }
  element_bytes_ = static_cast<std::size_t>(size);
  bytes_ = as_index(count_) * element_bytes_;
  packed_ = std::make_unique_for_overwrite<std::byte[]>(bytes_);
  return true;
}

/// Calls `move` for pieces of at most 2 GiB, the limit of MPI_Pack.
template <typename Move>
void TypedBuffer::each_piece(Move move) {
  if (element_bytes_ == 0) return;
  MPI_Aint least = 0;
  MPI_Aint extent = 0;
  check(PMPI_Type_get_extent(type_, &least, &extent), "MPI_Type_get_extent");
  constexpr auto most_bytes = static_cast<std::size_t>(std::numeric_limits<int>::max());
  const auto most = static_cast<std::int64_t>(most_bytes / element_bytes_);
  for (std::int64_t first = 0; first < count_; first += most) {
    const auto elements = static_cast<int>(std::min(most, count_ - first));
    move(data_ + first * extent, elements, packed_.get() + as_index(first) * element_bytes_,
         static_cast<int>(as_index(elements) * element_bytes_));
  }
}

void TypedBuffer::pack_all() {
  each_piece([&](std::byte* elements, int count, std::byte* packed, int bytes) {
    int position = 0;
    check(PMPI_Pack(elements, count, type_, packed, bytes, &position, MPI_COMM_SELF), "MPI_Pack");
  });
}

void TypedBuffer::unpack_all() {
  each_piece([&](std::byte* elements, int count, std::byte* packed, int bytes) {
    int position = 0;
    check(PMPI_Unpack(packed, bytes, &position, elements, count, type_, MPI_COMM_SELF), "MPI_Unpack");
  });
}

std::optional<Reduction> reduction_of(MPI_Datatype type, MPI_Op op) {
  const std::optional<ReduceOp> known_op = op_of(op);
  const KnownType* const known = find(type);
  if (!known_op || known == nullptr || !allows(known->arithmetic, *known_op)) return std::nullopt;
  return Reduction{known->element, *known_op, known->each};
}

std::size_t plain_bytes(MPI_Datatype type) {
  if (type == MPI_BYTE || type == MPI_CHAR || type == MPI_PACKED) return 1;
  if (const KnownType* const known = find(type)) return known->each * size_of(known->element);
  int integers = 0;
  int addresses = 0;
  int types = 0;
  int combiner = 0;
  int bytes = 0;
  MPI_Aint least = 0;
  MPI_Aint extent = 0;
  if (type == MPI_DATATYPE_NULL ||
      PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS ||
      combiner != MPI_COMBINER_NAMED || PMPI_Type_size(type, &bytes) != MPI_SUCCESS ||
      PMPI_Type_get_extent(type, &least, &extent) != MPI_SUCCESS || least != 0 || extent != bytes) {
    return 0;
  }
  return static_cast<std::size_t>(bytes);
}

}  // namespace ddl::mpi
