#include "src/client/ps/disks/part_files.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/common/io/whole_file.h"
#include "src/common/io/wire.h"
#include "src/common/status_macros.h"

namespace phalanx::ps::internal {
namespace {

constexpr absl::string_view kMagic = "phxpart1";
constexpr absl::string_view kSuffix = ".part";
constexpr absl::string_view kTemporary = ".writing";
constexpr size_t kHeaderSize = 56;
constexpr size_t kCrcAt = 52;

absl::Status Damaged(const std::string& path) {
  return absl::DataLossError(absl::StrCat(path,
                                          " is damaged or cut off. Bring an intact copy of it; or, "
                                          "when no node of the job lives, remove "
                                          "it: the servers go on from the state before it"));
}

// What is behind the state in the name of a file that is being written: the life, if it has one.
void StripLife(absl::string_view& name) {
  const size_t dot = name.rfind('.');
  uint64_t life = 0;
  if (dot != name.npos && absl::SimpleAtoi(name.substr(dot + 1), &life)) name = name.substr(0, dot);
}

}  // namespace

PartFiles::PartFiles(std::string directory, const Owner& owner)
    : directory_(std::move(directory)),
      of_table_(absl::StrCat(owner.job, absl::string_view("\0", 1), owner.role,
                             absl::string_view("\0", 1), owner.table)),
      prefix_(FilePrefix(owner.job, owner.table, of_table_)),
      part_(owner.part),
      parts_(owner.parts),
      life_(owner.life) {}

std::string PartFiles::PathOf(const PartState& at) const {
  return absl::StrCat(directory_, "/", prefix_, part_, "of", parts_, "_",
                      absl::Hex(at.line, absl::kZeroPad16), "_", at.state, kSuffix);
}

absl::StatusOr<std::vector<PartFiles::Name>> PartFiles::ListNames() const {
  PHALANX_ASSIGN_OR_RETURN(const std::vector<std::string> entries, ListDirectory(directory_));
  std::vector<Name> names;
  for (const std::string& entry : entries) {
    Name name;
    name.path = absl::StrCat(directory_, "/", entry);
    absl::string_view rest = entry;
    if (!absl::ConsumePrefix(&rest, prefix_)) continue;
    name.unfinished = absl::ConsumeSuffix(&rest, kTemporary);
    if (name.unfinished) StripLife(rest);
    if (!absl::ConsumeSuffix(&rest, kSuffix)) continue;
    const std::vector<absl::string_view> words = absl::StrSplit(rest, '_');
    if (words.size() != 3) continue;
    const std::vector<absl::string_view> place = absl::StrSplit(words[0], "of");
    int part = 0;
    const bool numbers = place.size() == 2 && absl::SimpleAtoi(place[0], &part) &&
                         absl::SimpleAtoi(place[1], &name.parts) &&
                         absl::SimpleHexAtoi(words[1], &name.at.line) &&
                         absl::SimpleAtoi(words[2], &name.at.state);
    if (numbers && part == part_) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end(), [](const Name& a, const Name& b) { return a.at < b.at; });
  return names;
}

absl::StatusOr<std::vector<PartState>> PartFiles::List() const {
  PHALANX_ASSIGN_OR_RETURN(const std::vector<Name> names, ListNames());
  std::vector<PartState> states;
  for (const Name& name : names) {
    if (name.unfinished) continue;
    if (name.parts != parts_) {
      return absl::FailedPreconditionError(absl::StrCat(
          name.path, " is of a job with ", name.parts, " servers, and this one has ", parts_,
          ". Start as many servers as then, or remove the files of all servers to begin anew"));
    }
    states.push_back(name.at);
  }
  return states;
}

absl::Status PartFiles::Write(const PartState& at, const Numbers& numbers,
                              absl::string_view snapshot) const {
  std::string header;
  ByteWriter out(header);
  out.Raw(kMagic);
  out.U64(at.line);
  out.U64(at.state);
  out.U64(numbers.snapshot);
  out.U64(numbers.stored);
  out.U64(snapshot.size());
  out.U32(static_cast<uint32_t>(of_table_.size()));
  out.U32(Crc32c(snapshot, Crc32c(of_table_, Crc32c(header))));
  const std::string path = PathOf(at);
  const absl::Status written = WriteWholeFile(
      directory_, path, absl::StrCat(path, ".", life_, kTemporary), {header, of_table_, snapshot});
  if (written.ok()) return written;
  return absl::Status(written.code(),
                      absl::StrCat(written.message(),
                                   ". The directory of checkpoints has to be there, writable, and "
                                   "with room for some snapshots of each part"));
}

absl::StatusOr<PartFiles::Content> PartFiles::Read(const PartState& at) const {
  const std::string path = PathOf(at);
  PHALANX_ASSIGN_OR_RETURN(const std::optional<std::string> file, ReadWholeFile(path));
  if (!file.has_value()) return absl::NotFoundError(absl::StrCat(path, " is not there any more"));
  ByteReader in(*file);
  const bool is_part = in.Raw(kMagic.size()) == kMagic;
  const PartState found{in.U64(), in.U64()};
  Content content;
  content.numbers.snapshot = in.U64();
  content.numbers.stored = in.U64();
  const uint64_t size = in.U64();
  const uint32_t name_size = in.U32();
  const uint32_t crc = in.U32();
  const absl::string_view name = in.Raw(name_size);
  const absl::string_view snapshot = in.Raw(size);
  if (!in.Finish().ok() || !is_part || found != at || name != of_table_) return Damaged(path);
  const uint32_t before = Crc32c(absl::string_view(*file).substr(0, kCrcAt));
  if (Crc32c(absl::string_view(*file).substr(kHeaderSize), before) != crc) return Damaged(path);
  content.snapshot = std::string(snapshot);
  return content;
}

absl::Status PartFiles::Remove(absl::FunctionRef<bool(const Name&)> predicate) const {
  PHALANX_ASSIGN_OR_RETURN(const std::vector<Name> names, ListNames());
  absl::Status status;
  for (const Name& name : names) {
    if (!predicate(name) || unlink(name.path.c_str()) == 0 || errno == ENOENT) continue;
    status.Update(absl::ErrnoToStatus(errno, absl::StrCat("cannot remove ", name.path)));
  }
  return status;
}

// By line first: what an earlier line has is before all that a later one has.
void PartFiles::KeepNewest(uint64_t line, size_t count) const {
  const absl::StatusOr<std::vector<PartState>> states = List();
  if (!states.ok()) return;
  std::vector<uint64_t> of_line;
  for (const PartState& at : *states) {
    if (at.line == line) of_line.push_back(at.state);
  }
  if (of_line.size() < count) return;
  const PartState first{line, of_line[of_line.size() - count]};
  Remove([&](const Name& name) {
    return !name.unfinished && FamilyOf(name.at.line) == FamilyOf(line) && name.at < first;
  }).IgnoreError();
}

void PartFiles::RemoveOthers(const PartState& last) const {
  Remove([&](const Name& name) {
    return !name.unfinished && (name.at.line != last.line || name.at.state > last.state);
  }).IgnoreError();
}

void PartFiles::RemoveUnfinished() const {
  Remove([](const Name& name) { return name.unfinished; }).IgnoreError();
}

// A file whose end is not on the disk would come back with the host, and count in the next run.
absl::Status PartFiles::RemoveAll() const {
  PHALANX_RETURN_IF_ERROR(Remove([](const Name&) { return true; }));
  return SyncDirectory(directory_);
}

}  // namespace phalanx::ps::internal
