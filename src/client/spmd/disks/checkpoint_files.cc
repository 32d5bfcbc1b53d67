#include "src/client/spmd/disks/checkpoint_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <tuple>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/common/status_macros.h"
#include "src/jobs/group/group_call.h"

namespace phalanx::spmd::internal {
namespace {

constexpr char kMagic[] = "phxckpt2";
constexpr char kSuffix[] = ".checkpoint";
constexpr char kTemporary[] = ".writing";
constexpr size_t kHeaderSize = 64;
constexpr size_t kCrcAt = 60;
constexpr char kEnded[] = "ended";
// Kinds of files.
constexpr uint32_t kWithLocal = 1;
constexpr uint32_t kFirst = 2;
constexpr uint32_t kMark = 4;
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

template <typename T>
void Append(std::string& to, T number) {
  for (size_t i = 0; i < sizeof(T); ++i) to.push_back(static_cast<char>(number >> 8 * i & 0xff));
}

template <typename T>
T Take(absl::string_view& from) {
  T number = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    number |= static_cast<T>(static_cast<uint8_t>(from[i])) << 8 * i;
  }
  from.remove_prefix(sizeof(T));
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

// Nothing if it is not there, or is no file.
absl::StatusOr<std::optional<std::string>> ReadAll(const std::string& path) {
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
    const uint64_t eight = Take<uint64_t>(bytes) ^ crc;
    crc = 0;
    for (size_t i = 0; i < 8; ++i) crc ^= tables[7 - i][eight >> 8 * i & 0xff];
  }
  for (const char c : bytes) crc = crc >> 8 ^ tables[0][(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return ~crc;
}

absl::Status CheckpointFiles::Check(const std::string& directory) {
  DIR* const opened = opendir(directory.c_str());
  if (opened == nullptr) return Failed("read the directory of checkpoints", directory);
  closedir(opened);
  return absl::OkStatus();
}

CheckpointFiles::CheckpointFiles(std::string directory, absl::string_view job,
                                 absl::string_view role, int rank)
    : directory_(std::move(directory)),
      of_job_(absl::StrCat(job, absl::string_view("\0", 1), role)),
      prefix_(absl::StrCat(Readable(job), "_", Readable(role), "_",
                           absl::Hex(HashOf(of_job_), absl::kZeroPad16), "_")),
      rank_(rank) {}

std::string CheckpointFiles::PathOf(const DiskRun& run, absl::string_view what) const {
  return absl::StrCat(directory_, "/", prefix_, run.number, "_",
                      absl::Hex(run.line, absl::kZeroPad8), "_",
                      absl::Hex(run.id, absl::kZeroPad16), "_", what, kSuffix);
}

std::string CheckpointFiles::PathOf(uint64_t version) const {
  return PathOf(run_, absl::StrCat(rank_, "_", version));
}

std::string CheckpointFiles::HeaderOf(uint64_t version, int rank, uint32_t kind) const {
  std::string header = kMagic;
  Append<uint32_t>(header, run_.number);
  Append<uint32_t>(header, run_.line);
  Append<uint64_t>(header, run_.id);
  Append<uint64_t>(header, version);
  Append<uint32_t>(header, static_cast<uint32_t>(rank));
  Append<uint32_t>(header, kind);
  return header;
}

absl::Status CheckpointFiles::Write(uint64_t version, absl::string_view global,
                                    std::optional<absl::string_view> local) const {
  return WriteAs(0, version, global, local);
}

absl::Status CheckpointFiles::WriteFirst(uint64_t version, absl::string_view global,
                                         std::optional<absl::string_view> local) const {
  return WriteAs(kFirst, version, global, local);
}

absl::Status CheckpointFiles::WriteAs(uint32_t kind, uint64_t version, absl::string_view global,
                                      std::optional<absl::string_view> local) const {
  if (local.has_value()) kind |= kWithLocal;
  return WriteTo(PathOf(version), HeaderOf(version, rank_, kind), global, local.value_or(""));
}

absl::Status CheckpointFiles::WriteTo(const std::string& path, std::string header,
                                      absl::string_view global, absl::string_view local) const {
  Append<uint64_t>(header, global.size());
  Append<uint64_t>(header, local.size());
  Append<uint32_t>(header, static_cast<uint32_t>(of_job_.size()));
  uint32_t crc = Crc32c(header);
  for (const absl::string_view part : {absl::string_view(of_job_), global, local}) {
    crc = Crc32c(part, crc);
  }
  Append<uint32_t>(header, crc);

  // Several ranks can write a mark.
  const std::string temporary = absl::StrCat(path, ".", rank_, kTemporary);
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return Failed("create", temporary);
  absl::Status status;
  for (const absl::string_view part :
       {absl::string_view(header), absl::string_view(of_job_), global, local}) {
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
  return SyncDirectory();
}

absl::Status CheckpointFiles::SyncDirectory() const {
  const int folder = open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return Failed("open", directory_);
  const absl::Cleanup close_folder = [folder] { close(folder); };
  // Some file systems cannot do this for a directory.
  if (fsync(folder) != 0 && errno != EINVAL) return Failed("fsync", directory_);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<CheckpointFiles::Name>> CheckpointFiles::Parse(
    absl::string_view entry) const {
  Name name;
  name.path = absl::StrCat(directory_, "/", entry);
  if (!absl::ConsumePrefix(&entry, prefix_)) return std::nullopt;
  if (absl::ConsumeSuffix(&entry, kTemporary)) {
    // Behind the name of the file is the rank that writes it.
    const size_t dot = entry.rfind('.');
    const bool by_rank =
        dot != entry.npos && absl::SimpleAtoi(entry.substr(dot + 1), &name.file.rank);
    if (!by_rank) return std::nullopt;
    name.unfinished = true;
    return name;
  }
  if (!absl::ConsumeSuffix(&entry, kSuffix)) return std::nullopt;
  const std::vector<absl::string_view> parts = absl::StrSplit(entry, '_');
  uint64_t number = 0;
  if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &number)) {
    return absl::FailedPreconditionError(absl::StrCat(
        name.path, " is a checkpoint of an earlier version of Phalanx: remove it to begin anew"));
  }
  DiskRun& run = name.file.run;
  name.mark = parts.size() == 4 && parts[3] == kEnded;
  const bool numbers =
      (name.mark || parts.size() == 5) && absl::SimpleAtoi(parts[0], &run.number) &&
      absl::SimpleHexAtoi(parts[1], &run.line) && absl::SimpleHexAtoi(parts[2], &run.id);
  if (!numbers) return std::nullopt;
  if (!name.mark && (!absl::SimpleAtoi(parts[3], &name.file.rank) ||
                     !absl::SimpleAtoi(parts[4], &name.file.version))) {
    return std::nullopt;
  }
  const std::string what =
      name.mark ? kEnded : absl::StrCat(name.file.rank, "_", name.file.version);
  if (run.number == 0 || PathOf(run, what) != name.path) return std::nullopt;
  return name;
}

absl::StatusOr<std::vector<CheckpointFiles::Name>> CheckpointFiles::List() const {
  std::vector<Name> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(opendir(directory_.c_str()), &closedir);
  if (opened == nullptr) return Failed("read the directory of checkpoints", directory_);
  while (true) {
    errno = 0;
    const dirent* const entry = readdir(opened.get());
    if (entry == nullptr && errno != 0) {
      return Failed("read the directory of checkpoints", directory_);
    }
    if (entry == nullptr) break;
    PHALANX_ASSIGN_OR_RETURN(std::optional<Name> name, Parse(entry->d_name));
    if (name.has_value()) names.push_back(*std::move(name));
  }
  std::sort(names.begin(), names.end(), [](const Name& a, const Name& b) {
    return std::tie(b.file.run, b.file.version, a.file.rank) <
           std::tie(a.file.run, a.file.version, b.file.rank);
  });
  return names;
}

absl::StatusOr<std::optional<CheckpointFile>> CheckpointFiles::ReadFile(const Name& name,
                                                                        bool local) const {
  PHALANX_ASSIGN_OR_RETURN(const std::optional<std::string> file, ReadAll(name.path));
  if (!file.has_value() || file->size() < kHeaderSize) return std::nullopt;
  absl::string_view rest = *file;
  if (!absl::ConsumePrefix(&rest, kMagic)) return std::nullopt;
  DiskRun run;
  run.number = Take<uint32_t>(rest);
  run.line = Take<uint32_t>(rest);
  run.id = Take<uint64_t>(rest);
  const bool its_version = Take<uint64_t>(rest) == name.file.version;
  const bool its_rank = Take<uint32_t>(rest) == static_cast<uint32_t>(name.file.rank);
  const uint32_t kind = Take<uint32_t>(rest);
  const bool its_kind = (kind & ~kFirst) == (name.mark ? kMark : 0u) + (local ? kWithLocal : 0u);
  const uint64_t global_size = Take<uint64_t>(rest);
  const uint64_t local_size = Take<uint64_t>(rest);
  const uint64_t name_size = Take<uint32_t>(rest);
  const uint32_t crc = Take<uint32_t>(rest);
  if (run != name.file.run || !its_version || !its_rank || !its_kind) return std::nullopt;
  if (name_size != of_job_.size() || rest.size() < name_size ||
      rest.size() - name_size < global_size ||
      rest.size() - name_size - global_size != local_size) {
    return std::nullopt;
  }
  if (Crc32c(rest, Crc32c(absl::string_view(*file).substr(0, kCrcAt))) != crc) return std::nullopt;
  if (!absl::ConsumePrefix(&rest, of_job_)) return std::nullopt;
  return CheckpointFile{run, name.file.version, (kind & kFirst) != 0,
                        std::string(rest.substr(0, global_size)),
                        std::string(rest.substr(global_size))};
}

void CheckpointFiles::Remove(absl::FunctionRef<bool(const Name&)> predicate) const {
  const absl::StatusOr<std::vector<Name>> names = List();
  if (!names.ok()) return;
  for (const Name& name : *names) {
    if (predicate(name)) unlink(name.path.c_str());
  }
}

void CheckpointFiles::RemoveUnfinished() const {
  Remove([this](const Name& name) { return name.unfinished && name.file.rank == rank_; });
}

absl::StatusOr<uint64_t> CheckpointFiles::ProposePlace(uint32_t line) const {
  PHALANX_ASSIGN_OR_RETURN(const std::vector<Name> names, List());
  PHALANX_ASSIGN_OR_RETURN(const DiskMarks marks, Marks());
  DiskRun newest;
  for (const Name& name : names) newest = std::max(newest, name.file.run);
  return internal::ProposePlace(newest, HasEnded(newest, marks), line);
}

absl::StatusOr<DiskMarks> CheckpointFiles::Marks() const {
  PHALANX_ASSIGN_OR_RETURN(const std::vector<Name> names, List());
  DiskMarks marks;
  size_t count = 0;
  for (const Name& name : names) {
    if (!name.mark || count == marks.size()) continue;
    PHALANX_ASSIGN_OR_RETURN(const std::optional<CheckpointFile> mark,
                             ReadFile(name, /*local=*/false));
    if (mark.has_value()) marks[count++] = mark->run;
  }
  return marks;
}

absl::StatusOr<std::optional<CheckpointFile>> CheckpointFiles::Newest(
    bool local, const DiskRun& before, absl::Span<const DiskRun> marks) const {
  PHALANX_ASSIGN_OR_RETURN(const std::vector<Name> names, List());
  for (const Name& name : names) {
    const DiskFile& file = name.file;
    if (name.mark || name.unfinished || file.run >= before || HasEnded(file.run, marks)) continue;
    if (file.version == 0 || (local && file.rank != rank_)) continue;
    PHALANX_ASSIGN_OR_RETURN(std::optional<CheckpointFile> whole, ReadFile(name, local));
    if (whole.has_value()) return whole;
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<CheckpointFile>> CheckpointFiles::Read(const DiskRun& run,
                                                                    uint64_t version) const {
  Name name;
  name.file = {run, rank_, version};
  name.path = PathOf(run, absl::StrCat(rank_, "_", version));
  return ReadFile(name, /*local=*/true);
}

void CheckpointFiles::RemoveEnded(absl::Span<const DiskRun> marks) const {
  if (marks.empty()) return;
  Remove([marks](const Name& name) {
    return !name.mark && !name.unfinished && HasEnded(name.file.run, marks);
  });
}

void CheckpointFiles::RemovePassedOver(const DiskRun& base) const {
  Remove([&](const Name& name) {
    return !name.mark && !name.unfinished && name.file.rank == rank_ &&
           WasPassedOver(name.file, base, run_);
  });
}

void CheckpointFiles::RemoveUntil(uint64_t version) {
  if (removed_.has_value()) {
    for (uint64_t at = *removed_ + 1; at <= version; ++at) unlink(PathOf(at).c_str());
  } else {
    Remove([&](const Name& name) {
      return !name.mark && !name.unfinished && IsFreed(name.file, run_, version);
    });
  }
  removed_ = std::max(removed_.value_or(0), version);
}

void CheckpointFiles::RemoveAll(bool mark) const {
  // Files stay behind a mark that cannot be written as they would without it.
  if (mark) WriteTo(PathOf(run_, kEnded), HeaderOf(0, 0, kMark), "", "").IgnoreError();
  size_t marks = 0;
  Remove([&](const Name& name) {
    if (name.mark) return ++marks > kMaxMarks;
    if (name.unfinished) return name.file.rank == rank_;
    return name.file.rank == rank_ || IsFreed(name.file, run_, removed_.value_or(0));
  });
}

absl::Status WriteFile(const std::optional<CheckpointFiles>& files, uint64_t version,
                       absl::string_view global, std::optional<absl::string_view> local) {
  if (!files.has_value()) return absl::OkStatus();
  if (!local.has_value() && global.size() > jobs::kMaxGroupBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a model of ", global.size(), " bytes; the limit with a directory of checkpoints is ",
        jobs::kMaxGroupBytes));
  }
  return files->Write(version, global, local);
}

}  // namespace phalanx::spmd::internal
