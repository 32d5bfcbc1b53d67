#include "src/node/host/machine.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/common/io/log.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime {
namespace {

constexpr uint64_t kMiB = 1 << 20;

std::optional<std::string> ReadFile(const std::string& path) {
  std::ifstream in(path);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Returns the number in a file. Returns nothing for "max", for any other text, and if there is no
// file.
std::optional<uint64_t> ReadNumber(const std::string& path) {
  const std::optional<std::string> text = ReadFile(path);
  uint64_t number = 0;
  if (!text || !absl::SimpleAtoi(*text, &number)) return std::nullopt;
  return number;
}

// Returns the number after "key" at the start of a line.
std::optional<uint64_t> FindNumber(absl::string_view text, absl::string_view key) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, key)) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t:"), absl::SkipEmpty());
    uint64_t number = 0;
    if (!words.empty() && absl::SimpleAtoi(words[0], &number)) return number;
  }
  return std::nullopt;
}

// The file names of one version of cgroups.
struct CgroupFiles {
  absl::string_view mount;
  absl::string_view limit;
  absl::string_view usage;
  // In memory.stat: page cache that the kernel reclaims before it enforces the limit.
  absl::string_view reclaimable;
};
constexpr CgroupFiles kVersion2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                   "inactive_file "};
constexpr CgroupFiles kVersion1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                   "memory.usage_in_bytes", "total_inactive_file "};

std::optional<uint64_t> RoomInFolder(const std::string& folder, const CgroupFiles& files) {
  const std::optional<uint64_t> limit = ReadNumber(absl::StrCat(folder, "/", files.limit));
  if (!limit) return std::nullopt;
  uint64_t used = ReadNumber(absl::StrCat(folder, "/", files.usage)).value_or(0);
  const std::string stat = ReadFile(absl::StrCat(folder, "/memory.stat")).value_or("");
  used -= std::min(used, FindNumber(stat, files.reclaimable).value_or(0));
  // The usage can exceed a limit that was lowered.
  return *limit - std::min(*limit, used);
}

// Returns the minimum over the cgroup and those above it. In a container the path can name a folder
// that is not mounted; a missing folder does not limit, and the mount's own folder does.
uint64_t RoomInCgroups(absl::string_view root, absl::string_view path, const CgroupFiles& files) {
  uint64_t room = UINT64_MAX;
  std::string below(absl::StripSuffix(path, "/"));
  while (true) {
    const std::string folder = absl::StrCat(root, files.mount, below);
    room = std::min(room, RoomInFolder(folder, files).value_or(UINT64_MAX));
    if (below.empty()) return room;
    below.resize(below.find_last_of('/') == std::string::npos ? 0 : below.find_last_of('/'));
  }
}

}  // namespace

absl::StatusOr<uint64_t> AvailableMemory(absl::string_view root) {
  const std::string path = absl::StrCat(root, "/proc/meminfo");
  const std::optional<std::string> meminfo = ReadFile(path);
  const std::optional<uint64_t> available_kib =
      meminfo ? FindNumber(*meminfo, "MemAvailable:") : std::nullopt;
  // Without this number any default could exhaust the machine, so the operator has to choose.
  if (!available_kib) {
    return absl::UnavailableError(
        absl::StrCat(path, " does not say how much memory is available: give --capacity"));
  }
  uint64_t available = *available_kib * 1024;
  const std::string cgroups = ReadFile(absl::StrCat(root, "/proc/self/cgroup")).value_or("");
  for (const absl::string_view line : absl::StrSplit(cgroups, '\n')) {
    // "0::/path" for version 2, "4:memory:/path" for version 1. A host can mount both.
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    if (fields[0] == "0" && fields[1].empty()) {
      available = std::min(available, RoomInCgroups(root, fields[2], kVersion2));
    }
    const std::vector<absl::string_view> controllers = absl::StrSplit(fields[1], ',');
    if (std::find(controllers.begin(), controllers.end(), "memory") != controllers.end()) {
      available = std::min(available, RoomInCgroups(root, fields[2], kVersion1));
    }
  }
  return available;
}

absl::StatusOr<uint64_t> DefaultCapacity(absl::string_view root) {
  const absl::StatusOr<uint64_t> available = AvailableMemory(root);
  if (!available.ok()) return available.status();
  const double share = kDefaultCapacityShare * static_cast<double>(*available);
  // A machine without free memory still gets a node that starts.
  return std::max(static_cast<uint64_t>(share) / kMiB, uint64_t{64}) * kMiB;
}

std::string CapacityWarning(uint64_t capacity_bytes, absl::string_view root) {
  const uint64_t available = AvailableMemory(root).value_or(UINT64_MAX);
  // If the memory is unknown there is nothing to warn about.
  if (capacity_bytes <= available) return "";
  return absl::StrCat(
      "the capacity of ", capacity_bytes / kMiB, " MiB is more than the ", available / kMiB,
      " MiB that this machine and the cgroup's limit leave: Puts and Gets will fail "
      "with RESOURCE_EXHAUSTED before it is used up; give a smaller --capacity, or "
      "the container more memory");
}

absl::Status CheckCapacity(uint64_t capacity_bytes) {
  if (capacity_bytes >= kLeastCapacity) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the capacity of ", capacity_bytes, " bytes is less than the minimum of ",
                   kLeastCapacity / kMiB, "MiB: give a larger capacity (--capacity)"));
}

absl::Status SettleCapacity(uint64_t* capacity_bytes) {
  if (*capacity_bytes == 0) {
    PHALANX_ASSIGN_OR_RETURN(*capacity_bytes, DefaultCapacity(""));
  }
  PHALANX_RETURN_IF_ERROR(CheckCapacity(*capacity_bytes));
  if (const std::string text = CapacityWarning(*capacity_bytes, ""); !text.empty()) {
    PHALANX_LOG(WARNING) << text;
  }
  return absl::OkStatus();
}

void IgnoreBrokenPipes() { signal(SIGPIPE, SIG_IGN); }

std::string ShortHostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "localhost";
  const absl::string_view whole = name;
  return std::string(whole.substr(0, whole.find('.')));
}

}  // namespace phalanx::runtime
