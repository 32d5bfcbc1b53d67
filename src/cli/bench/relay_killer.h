// Implements --kill of the benchmark: kills or stops relays of a running broadcast, or nodes of a
// running reduction, and counts the bytes that the repair cost.
//
// It takes the victims from the directory's record of the tree. For a broadcast they are nodes that
// receive, have `fraction` of the object, and have at least two descendants. For a reduction they
// are nodes of slots that have folded `fraction` of it, with at least two slots below and two
// above. The daemons must run on this machine, from this executable, and with --name on their
// command line; no other process is ever killed. One thread, blocking.
#ifndef PHALANX_CLI_BENCH_RELAY_KILLER_H_
#define PHALANX_CLI_BENCH_RELAY_KILLER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "phalanx/object_id.h"
#include "src/cli/bench/runner.h"
#include "src/directory/grpc/tools_client.h"

namespace phalanx::runtime::bench {

// Returns the nodes to kill, those with the most descendants first; fewer than `count` if there are
// not enough.
std::vector<std::string> ChooseVictims(const v1::DescribeObjectResponse& tree, uint64_t size_bytes,
                                       double fraction, int count);

// The same for a reduction. Excludes nodes that compute two or more slots.
std::vector<std::string> ChooseReducers(const v1::ReductionDescription& tree, double fraction,
                                        int count);

// Returns whether these arguments of a process, each ended by a zero byte, are those of `phalanx
// node` with --name=`name`.
bool StartsNode(absl::string_view arguments, absl::string_view name);

// Returns tools that use `client`, which must outlive them. `signal` is SIGKILL or SIGSTOP. The
// killer waits until there are `count` victims. Errors: FailedPrecondition if the operation ends
// before, DeadlineExceeded if neither happens within two minutes, Unavailable if a victim's process
// is not such a node on this machine or cannot be killed.
DirectoryTools MakeDirectoryTools(directory::ToolsClient& client, int count, double fraction,
                                  int signal);

}  // namespace phalanx::runtime::bench

#endif  // PHALANX_CLI_BENCH_RELAY_KILLER_H_
