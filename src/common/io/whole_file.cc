#include "src/common/io/whole_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace phalanx {
namespace {

// Of the names of a job and of a role in the name of a file.
constexpr size_t kMaxReadableName = 60;

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// Of eight bytes at a time.
const Tables& CrcTables() {
  static const Tables tables = [] {
    constexpr uint32_t kReversedPolynomial = 0x82f63b78;
    Tables made;
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? kReversedPolynomial : 0);
      made[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; ++i) {
      for (size_t t = 1; t < 8; ++t) {
        made[t][i] = made[t - 1][i] >> 8 ^ made[0][made[t - 1][i] & 0xff];
      }
    }
    return made;
  }();
  return tables;
}

uint64_t TakeEight(absl::string_view& from) {
  uint64_t number = 0;
  for (size_t i = 0; i < 8; ++i) {
    number |= static_cast<uint64_t>(static_cast<uint8_t>(from[i])) << 8 * i;
  }
  from.remove_prefix(8);
  return number;
}

absl::Status Failed(absl::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

absl::Status WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return absl::ErrnoToStatus(errno, "write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

// Names of jobs can be long, and have characters that names of files have not.
std::string Readable(absl::string_view name) {
  std::string readable(name.substr(0, kMaxReadableName));
  for (char& c : readable) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-') c = '_';
  }
  return readable;
}

// FNV-1a: the same in every process, forever.
uint64_t HashOf(absl::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

uint32_t Crc32c(absl::string_view bytes, uint32_t before) {
  const Tables& tables = CrcTables();
  uint32_t crc = ~before;
  while (bytes.size() >= 8) {
    const uint64_t eight = TakeEight(bytes) ^ crc;
    crc = 0;
    for (size_t i = 0; i < 8; ++i) crc ^= tables[7 - i][eight >> 8 * i & 0xff];
  }
  for (const char c : bytes) crc = crc >> 8 ^ tables[0][(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return ~crc;
}

std::string FilePrefix(absl::string_view job, absl::string_view role, absl::string_view of_job) {
  return absl::StrCat(Readable(job), "_", Readable(role), "_",
                      absl::Hex(HashOf(of_job), absl::kZeroPad16), "_");
}

absl::Status CheckDirectory(const std::string& directory) {
  DIR* const opened = opendir(directory.c_str());
  if (opened == nullptr) return Failed("read the directory of checkpoints", directory);
  closedir(opened);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& directory) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(opendir(directory.c_str()), &closedir);
  if (opened == nullptr) return Failed("read the directory of checkpoints", directory);
  while (true) {
    errno = 0;
    const dirent* const entry = readdir(opened.get());
    if (entry == nullptr && errno != 0) {
      return Failed("read the directory of checkpoints", directory);
    }
    if (entry == nullptr) return names;
    names.emplace_back(entry->d_name);
  }
}

absl::Status WriteWholeFile(const std::string& directory, const std::string& path,
                            const std::string& temporary,
                            absl::Span<const absl::string_view> parts) {
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return Failed("create", temporary);
  absl::Status status;
  for (const absl::string_view part : parts) {
    if (status.ok()) status = WriteAll(fd, part);
  }
  if (status.ok() && fdatasync(fd) != 0) status = absl::ErrnoToStatus(errno, "fdatasync");
  if (close(fd) != 0 && status.ok()) status = absl::ErrnoToStatus(errno, "close");
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = absl::ErrnoToStatus(errno, "rename");
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return absl::Status(status.code(), absl::StrCat("cannot write ", path, ": ", status.message()));
  }
  // That the file has its name is to be on the disk, too.
  return SyncDirectory(directory);
}

absl::Status SyncDirectory(const std::string& directory) {
  const int folder = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return Failed("open", directory);
  const absl::Cleanup close_folder = [folder] { close(folder); };
  // Some file systems cannot do this for a directory.
  if (fsync(folder) != 0 && errno != EINVAL) return Failed("fsync", directory);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::string>> ReadWholeFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return std::nullopt;
  if (fd < 0) return Failed("open", path);
  const absl::Cleanup close_fd = [fd] { close(fd); };
  struct stat info = {};
  if (fstat(fd, &info) != 0) return Failed("read", path);
  if (!S_ISREG(info.st_mode)) return std::nullopt;
  std::string bytes(static_cast<size_t>(info.st_size), 0);
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t got = read(fd, bytes.data() + at, bytes.size() - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed("read", path);
    if (got == 0) return std::nullopt;
    at += static_cast<size_t>(got);
  }
  return bytes;
}

}  // namespace phalanx
