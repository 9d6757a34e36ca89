#include "ddl/files/durable_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "ddl/checkpoint.hpp"
#include "topology/refuse.hpp"

namespace ddl {

namespace fs = std::filesystem;

namespace {

fs::path directory_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace

void throw_io(std::string_view operation, const fs::path& path, int error) {
  fail_with(ErrorCode::io, "cannot {} '{}': {} (errno {})", operation, path.string(),
            std::generic_category().message(error), error);
}

void throw_corrupt(const fs::path& path, std::string_view found, std::string_view expected) {
  fail_with(ErrorCode::corrupt_data, "'{}' is damaged: found {}, expected {}", path.string(), found,
            expected);
}

void FileSummary::add(std::span<const std::byte> data) noexcept {
  crc32 = static_cast<std::uint32_t>(
      ::crc32_z(crc32, reinterpret_cast<const unsigned char*>(data.data()), data.size()));
  bytes += data.size();
}

FileWriter::FileWriter(const fs::path& path, fs::path named)
    : path_(std::move(named)), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (!file_.valid()) throw_io("create", path_, errno);
}

void FileWriter::write(std::span<const std::byte> bytes) {
  // Writes in pieces, so that each is still in the cache when its checksum is computed.
  constexpr std::size_t piece = std::size_t{1} << 20;
  while (!bytes.empty()) {
    const ::ssize_t written = ::write(file_.get(), bytes.data(), std::min(bytes.size(), piece));
    if (written < 0) {
      if (errno == EINTR) continue;
      throw_io("write", path_, errno);
    }
    summary_.add(bytes.first(static_cast<std::size_t>(written)));
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void FileWriter::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

FileSummary FileWriter::finish() {
  if (::fsync(file_.get()) != 0) throw_io("sync", path_, errno);
  if (::close(file_.release()) != 0) throw_io("close", path_, errno);
  return summary_;
}

// O_NONBLOCK, because opening a pipe in place of a file would otherwise wait for a writer.
FileReader::FileReader(fs::path path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (!file_.valid()) throw_io("open", path_, errno);
  struct ::stat status {};
  if (::fstat(file_.get(), &status) != 0) throw_io("inspect", path_, errno);
  if (!S_ISREG(status.st_mode)) throw_corrupt(path_, "something that is not a regular file", "a file");
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void FileReader::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  const std::uint64_t wanted = offset + bytes.size();
  while (!bytes.empty()) {
    const ::ssize_t got =
        ::pread(file_.get(), bytes.data(), bytes.size(), static_cast<::off_t>(wanted - bytes.size()));
    if (got < 0) {
      if (errno == EINTR) continue;
      // EIO means a bad disk, so the data is lost. Other errors, such as missing permissions, may go away.
      if (errno == EIO) throw_corrupt(path_, "an input/output error (EIO)", "bytes that can be read");
      throw_io("read", path_, errno);
    }
    if (got == 0) {
      throw_corrupt(path_, fmt::format("its end after {} bytes", wanted - bytes.size()),
                    fmt::format("at least {} bytes", wanted));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

std::string FileReader::read_all() const {
  std::string text(size_, '\0');
  read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

FileSummary FileReader::summary() const {
  std::vector<std::byte> buffer(std::min<std::uint64_t>(size_, std::uint64_t{1} << 20));
  FileSummary summary;
  while (summary.bytes < size_) {
    const auto piece = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), size_ - summary.bytes));
    read_at(summary.bytes, piece);
    summary.add(piece);
  }
  return summary;
}

std::string read_file(const fs::path& path, std::uint64_t most, std::string_view what) {
  const FileReader file(path);
  if (file.size() > most) throw_corrupt(path, fmt::format("{} bytes", file.size()), what);
  return file.read_all();
}

void make_directories(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw_io("make directory", directory, error.value());
}

void sync_directory(const fs::path& directory) {
  const collectives::FileDescriptor file(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file.valid()) throw_io("open", directory, errno);
  // Some network file systems cannot sync directories and return EINVAL.
  if (::fsync(file.get()) != 0 && errno != EINVAL) throw_io("sync", directory, errno);
}

AtomicFileWriter::AtomicFileWriter(fs::path path)
    : path_(std::move(path)),
      temporary_(directory_of(path_) / fmt::format(".{}.tmp-{}", path_.filename().string(), ::getpid())),
      file_(temporary_, path_) {}

AtomicFileWriter::~AtomicFileWriter() {
  if (!finished_) ::unlink(temporary_.c_str());
}

void AtomicFileWriter::finish() {
  file_.finish();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw_io("replace", path_, errno);
  finished_ = true;
  sync_directory(directory_of(path_));
}

void write_file_atomically(const fs::path& path, std::string_view bytes) {
  AtomicFileWriter file(path);
  file.write(bytes);
  file.finish();
}

}  // namespace ddl
