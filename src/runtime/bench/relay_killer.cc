#include "src/runtime/bench/relay_killer.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "src/common/status_macros.h"
#include "src/runtime/bench/rendezvous.h"

namespace phalanx::runtime::bench {
namespace {

// The tree is asked for again after so long: often against a broadcast of 0.3 s, rarely against the
// shard's own work.
constexpr absl::Duration kLookEvery = absl::Milliseconds(5);
// A receiver that waits for ever keeps the broadcast from being over.
constexpr absl::Duration kPatience = absl::Minutes(2);

uint64_t Present(const v1::CopyDescription& copy, uint64_t size_bytes) {
  if (copy.complete()) return size_bytes;
  return std::accumulate(copy.watermarks().begin(), copy.watermarks().end(), uint64_t{0});
}

// Name -> names of those it feeds.
using Children = std::map<std::string, std::vector<std::string>>;

void CollectBelow(const Children& children, const std::string& name, std::set<std::string>* below) {
  const auto found = children.find(name);
  if (found == children.end()) return;
  for (const std::string& child : found->second) {
    if (below->insert(child).second) CollectBelow(children, child, below);
  }
}

// Process ids of the nodes, by name.
absl::StatusOr<std::map<std::string, pid_t>> ProcessIds(directory::ToolsClient& client) {
  std::map<std::string, pid_t> pids;
  for (const absl::StatusOr<v1::GetStatusResponse>& shard : client.GetStatus()) {
    PHALANX_RETURN_IF_ERROR(shard.status());
    for (const v1::NodeStatus& node : shard->nodes()) {
      if (node.connected()) pids[node.info().name()] = node.info().process_id();
    }
  }
  return pids;
}

// Whether `pid` is this machine's node of that name: a process of this very executable that was
// started with it. The id was told by the node, which may run on another machine, where it means
// another process, or another node.
absl::Status RequireOurs(const std::string& name, pid_t pid) {
  struct stat own {};
  struct stat its {};
  const bool ours = pid > 1 && pid != getpid() && stat("/proc/self/exe", &own) == 0 &&
                    stat(absl::StrCat("/proc/", pid, "/exe").c_str(), &its) == 0 &&
                    own.st_dev == its.st_dev && own.st_ino == its.st_ino;
  std::ifstream file(absl::StrCat("/proc/", pid, "/cmdline"));
  const std::string arguments((std::istreambuf_iterator<char>(file)),
                              std::istreambuf_iterator<char>());
  if (ours && StartsNode(arguments, name)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot kill ", name, ": its process id ", pid,
                   " is not, on this machine, this executable started as node with --name=", name));
}

bool Over(const v1::DescribeObjectResponse& tree) {
  return tree.waiting_size() == 0 && tree.copies_size() > 1 &&
         std::all_of(tree.copies().begin(), tree.copies().end(),
                     [](const v1::CopyDescription& copy) { return copy.complete(); });
}

absl::StatusOr<KillReport> KillRelays(directory::ToolsClient& client, int count, double fraction,
                                      int signal, const ObjectId& object, uint64_t size_bytes) {
  PHALANX_ASSIGN_OR_RETURN(const auto pids, ProcessIds(client));
  const int64_t until = MonotonicNanos() + absl::ToInt64Nanoseconds(kPatience);
  while (MonotonicNanos() < until) {
    PHALANX_ASSIGN_OR_RETURN(const v1::DescribeObjectResponse tree, client.Describe(object));
    KillReport report;
    report.nodes = ChooseVictims(tree, size_bytes, fraction, count);
    if (report.nodes.size() == static_cast<size_t>(count)) {
      for (const std::string& name : report.nodes) {
        const auto pid = pids.find(name);
        if (pid == pids.end()) {
          return absl::UnavailableError(absl::StrCat("cannot kill ", name, ": it is gone"));
        }
        PHALANX_RETURN_IF_ERROR(RequireOurs(name, pid->second));
        if (kill(pid->second, signal) != 0) {
          return absl::UnavailableError(
              absl::StrCat("cannot kill ", name, ": ", std::strerror(errno)));
        }
      }
      return report;
    }
    if (Over(tree)) {
      return absl::FailedPreconditionError(
          "the broadcast was over before a relay with two descendants was seen so far");
    }
    SleepUntilNanos(MonotonicNanos() + absl::ToInt64Nanoseconds(kLookEvery));
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "no ", count, " relays with two descendants were seen in ", absl::FormatDuration(kPatience)));
}

absl::StatusOr<uint64_t> CountBytesReceived(directory::ToolsClient& client,
                                            const ObjectId& object) {
  PHALANX_ASSIGN_OR_RETURN(const v1::DescribeObjectResponse tree, client.Describe(object));
  uint64_t received = 0;
  for (const v1::CopyDescription& copy : tree.copies()) {
    if (copy.connected() && copy.complete()) received += copy.bytes_received();
  }
  return received;
}

}  // namespace

bool StartsNode(absl::string_view arguments, absl::string_view name) {
  const std::vector<absl::string_view> words = absl::StrSplit(arguments, '\0');
  if (words.size() < 2 || words[1] != "node") return false;
  for (size_t i = 2; i < words.size(); ++i) {
    if (words[i] == absl::StrCat("--name=", name)) return true;
    if (words[i] == "--name" && i + 1 < words.size() && words[i + 1] == name) return true;
  }
  return false;
}

std::vector<std::string> ChooseVictims(const v1::DescribeObjectResponse& tree, uint64_t size_bytes,
                                       double fraction, int count) {
  Children children;
  for (const v1::CopyDescription& copy : tree.copies()) {
    if (!copy.sender_name().empty()) children[copy.sender_name()].push_back(copy.name());
  }
  std::vector<std::pair<size_t, std::string>> candidates;
  std::map<std::string, std::set<std::string>> below;
  for (const v1::CopyDescription& copy : tree.copies()) {
    CollectBelow(children, copy.name(), &below[copy.name()]);
    const bool relay = !copy.sender_name().empty() && !copy.primary() && copy.connected();
    if (relay && below[copy.name()].size() >= 2 &&
        Present(copy, size_bytes) >= fraction * static_cast<double>(size_bytes)) {
      candidates.emplace_back(below[copy.name()].size(), copy.name());
    }
  }
  std::sort(candidates.rbegin(), candidates.rend());
  std::vector<std::string> victims;
  for (const auto& [descendants, name] : candidates) {
    if (victims.size() < static_cast<size_t>(count)) victims.push_back(name);
  }
  return victims;
}

DirectoryTools MakeDirectoryTools(directory::ToolsClient& client, int count, double fraction,
                                  int signal) {
  DirectoryTools tools;
  tools.kill = [&client, count, fraction, signal](const ObjectId& object, uint64_t size_bytes) {
    return KillRelays(client, count, fraction, signal, object, size_bytes);
  };
  tools.bytes_received = [&client](const ObjectId& object) {
    return CountBytesReceived(client, object);
  };
  return tools;
}

}  // namespace phalanx::runtime::bench
