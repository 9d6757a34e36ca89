#include "ddl/mpi_interposer/typed_buffer.hpp"

#include <algorithm>
#include <limits>

#include "ddl/error.hpp"
#include "ddl/mpi_interposer/reductions.hpp"

namespace ddl::mpi {
namespace {

void check(int result, const char* call) {
  if (result != MPI_SUCCESS)
    throw Error(ErrorCode::invalid_argument, std::string(call) + " refused a datatype");
}

}  // namespace

std::optional<TypedBuffer> TypedBuffer::of(const void* data, std::int64_t count, MPI_Datatype type) {
  TypedBuffer buffer;
  buffer.data_ = static_cast<std::byte*>(const_cast<void*>(data));  // written to only by `unpack`
  buffer.count_ = count;
  buffer.element_bytes_ = plain_bytes(type);
  if (buffer.element_bytes_ == 0) {
    int size = 0;
    MPI_Datatype copy = MPI_DATATYPE_NULL;
    if (type == MPI_DATATYPE_NULL || PMPI_Type_size(type, &size) != MPI_SUCCESS || size == MPI_UNDEFINED ||
        PMPI_Type_dup(type, &copy) != MPI_SUCCESS) {
      return std::nullopt;
    }
    buffer.element_bytes_ = static_cast<std::size_t>(size);
    buffer.type_ = std::shared_ptr<MPI_Datatype>(new MPI_Datatype(copy), [](MPI_Datatype* own) {
      PMPI_Type_free(own);
      delete own;
    });
  }
  buffer.bytes_ = static_cast<std::size_t>(count) * buffer.element_bytes_;
  if (buffer.type_) buffer.packed_ = std::make_shared<std::byte[]>(std::max<std::size_t>(buffer.bytes_, 1));
  return buffer;
}

/// MPI packs at most 2 GiB at a time.
template <typename Move>
void TypedBuffer::each_piece(Move move) {
  if (!type_ || element_bytes_ == 0) return;
  MPI_Aint least = 0;
  MPI_Aint extent = 0;
  check(PMPI_Type_get_extent(*type_, &least, &extent), "MPI_Type_get_extent");
  constexpr auto most_bytes = static_cast<std::size_t>(std::numeric_limits<int>::max());
  const auto most = static_cast<std::int64_t>(most_bytes / element_bytes_);
  for (std::int64_t first = 0; first < count_; first += most) {
    const auto elements = static_cast<int>(std::min(most, count_ - first));
    move(data_ + first * extent, elements, packed_.get() + static_cast<std::size_t>(first) * element_bytes_,
         static_cast<int>(static_cast<std::size_t>(elements) * element_bytes_));
  }
}

void TypedBuffer::pack() {
  each_piece([&](std::byte* elements, int count, std::byte* packed, int bytes) {
    int position = 0;
    check(PMPI_Pack(elements, count, *type_, packed, bytes, &position, MPI_COMM_SELF), "MPI_Pack");
  });
}

void TypedBuffer::unpack() {
  each_piece([&](std::byte* elements, int count, std::byte* packed, int bytes) {
    int position = 0;
    check(PMPI_Unpack(packed, bytes, &position, elements, count, *type_, MPI_COMM_SELF), "MPI_Unpack");
  });
}

}  // namespace ddl::mpi
