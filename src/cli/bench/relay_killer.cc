#include "src/cli/bench/relay_killer.h"

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

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "src/cli/bench/rendezvous.h"
#include "src/common/status_macros.h"

namespace phalanx::runtime::bench {
namespace {

// The interval between two looks at the tree: short against a broadcast of 0.3 s, long against the
// shard's own work.
constexpr absl::Duration kLookEvery = absl::Milliseconds(5);
// A receiver that waits forever keeps the broadcast from ending.
constexpr absl::Duration kPatience = absl::Minutes(2);

// Watermarks are per slice, so their sum counts the bytes of a partial copy.
uint64_t Present(const v1::CopyDescription& copy, uint64_t size_bytes) {
  if (copy.complete()) return size_bytes;
  return std::accumulate(copy.watermarks().begin(), copy.watermarks().end(), uint64_t{0});
}

// The receivers of each node, by name.
using Children = std::map<std::string, std::vector<std::string>>;

void CollectBelow(const Children& children, const std::string& name, std::set<std::string>* below) {
  const auto found = children.find(name);
  if (found == children.end()) return;
  for (const std::string& child : found->second) {
    // The set also ends the recursion if the record has a cycle.
    if (below->insert(child).second) CollectBelow(children, child, below);
  }
}

// The process ids of the nodes, by name.
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

// Checks that `pid` is the node of that name on this machine: a process of this executable, started
// with that name. The id comes from the node, which can run on another machine. There the number
// belongs to another process.
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

absl::Status KillNode(const std::map<std::string, pid_t>& pids, const std::string& name,
                      int signal) {
  const auto pid = pids.find(name);
  if (pid == pids.end()) {
    return absl::UnavailableError(absl::StrCat("cannot kill ", name, ": it is not connected"));
  }
  PHALANX_RETURN_IF_ERROR(RequireOurs(name, pid->second));
  if (kill(pid->second, signal) == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot kill ", name, ": ", std::strerror(errno)));
}

// Looks at the tree until there are `count` victims, or until `over` returns true.
absl::StatusOr<KillReport> KillChosen(
    directory::ToolsClient& client, const ObjectId& object, size_t count, int signal,
    absl::FunctionRef<std::vector<std::string>(const v1::DescribeObjectResponse&)> choose,
    absl::FunctionRef<bool(const v1::DescribeObjectResponse&)> over) {
  // Read before the loop: between the choice and the kill no request must pass.
  PHALANX_ASSIGN_OR_RETURN(const auto pids, ProcessIds(client));
  const int64_t until = MonotonicNanos() + absl::ToInt64Nanoseconds(kPatience);
  while (MonotonicNanos() < until) {
    PHALANX_ASSIGN_OR_RETURN(const v1::DescribeObjectResponse tree, client.Describe(object));
    KillReport report;
    // All victims from one look, so that no repair has started between two choices.
    report.nodes = choose(tree);
    if (report.nodes.size() == count) {
      for (const std::string& name : report.nodes) {
        PHALANX_RETURN_IF_ERROR(KillNode(pids, name, signal));
      }
      return report;
    }
    if (over(tree)) {
      return absl::FailedPreconditionError(
          "the operation ended before an inner node of the tree had that fraction");
    }
    SleepUntilNanos(MonotonicNanos() + absl::ToInt64Nanoseconds(kLookEvery));
  }
  return absl::DeadlineExceededError(
      absl::StrCat("no ", count, " inner nodes of the tree had that fraction within ",
                   absl::FormatDuration(kPatience)));
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
  // Descending: a relay with many descendants makes the repair visible.
  std::sort(candidates.rbegin(), candidates.rend());
  std::vector<std::string> victims;
  for (const auto& [descendants, name] : candidates) {
    if (victims.size() < static_cast<size_t>(count)) victims.push_back(name);
  }
  return victims;
}

std::vector<std::string> ChooseReducers(const v1::ReductionDescription& tree, double fraction,
                                        int count) {
  std::map<int, int> parents;
  std::map<std::string, int> slots_of;
  for (const auto& slot : tree.slots()) {
    // A ring is cut before its first member, whose node has the caller.
    const bool cut = tree.ring() && slot.parent() == 0;
    parents[static_cast<int>(slot.slot())] = cut ? -1 : slot.parent();
    if (!slot.node_name().empty()) ++slots_of[slot.node_name()];
  }
  std::map<int, int> above;
  std::map<int, int> below;
  for (const auto& [slot, parent] : parents) {
    // At most as many steps as slots, because the record can contain a cycle.
    for (int at = parent; at >= 0 && above[slot] <= tree.slots_size();) {
      ++above[slot];
      ++below[at];
      const auto next = parents.find(at);
      at = next == parents.end() ? -1 : next->second;
    }
  }
  std::vector<std::string> victims;
  for (const auto& slot : tree.slots()) {
    const int number = static_cast<int>(slot.slot());
    const double needed = fraction * static_cast<double>(tree.size_bytes());
    const bool folds = tree.size_bytes() > 0 && static_cast<double>(slot.watermark()) >= needed;
    if (below[number] >= 2 && above[number] >= 2 && folds && slot.connected() &&
        slots_of[slot.node_name()] == 1 && victims.size() < static_cast<size_t>(count)) {
      victims.push_back(slot.node_name());
    }
  }
  return victims;
}

DirectoryTools MakeDirectoryTools(directory::ToolsClient& client, int count, double fraction,
                                  int signal) {
  DirectoryTools tools;
  const auto wanted = static_cast<size_t>(count);
  tools.kill = [&client, count, wanted, fraction, signal](const ObjectId& object, uint64_t size) {
    const auto choose = [size, fraction, count](const v1::DescribeObjectResponse& tree) {
      return ChooseVictims(tree, size, fraction, count);
    };
    return KillChosen(client, object, wanted, signal, choose, Over);
  };
  tools.kill_reducer = [&client, count, wanted, fraction, signal](const ObjectId& object,
                                                                  uint64_t) {
    const auto choose = [fraction, count](const v1::DescribeObjectResponse& tree) {
      return ChooseReducers(tree.reduction(), fraction, count);
    };
    return KillChosen(client, object, wanted, signal, choose, [](const auto& tree) {
      return tree.copies_size() > 0 && tree.copies(0).complete();
    });
  };
  tools.bytes_received = [&client](const ObjectId& object) {
    return CountBytesReceived(client, object);
  };
  return tools;
}

}  // namespace phalanx::runtime::bench
