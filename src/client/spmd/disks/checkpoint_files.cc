#include "src/client/spmd/disks/checkpoint_files.h"

#include <unistd.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/common/io/whole_file.h"
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

}  // namespace

CheckpointFiles::CheckpointFiles(std::string directory, absl::string_view job,
                                 absl::string_view role, int rank)
    : directory_(std::move(directory)),
      of_job_(absl::StrCat(job, absl::string_view("\0", 1), role)),
      prefix_(FilePrefix(job, role, of_job_)),
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
  return WriteWholeFile(directory_, path, temporary, {header, of_job_, global, local});
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
  PHALANX_ASSIGN_OR_RETURN(const std::vector<std::string> entries, ListDirectory(directory_));
  std::vector<Name> names;
  for (const std::string& entry : entries) {
    PHALANX_ASSIGN_OR_RETURN(std::optional<Name> name, Parse(entry));
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
  PHALANX_ASSIGN_OR_RETURN(const std::optional<std::string> file, ReadWholeFile(name.path));
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
