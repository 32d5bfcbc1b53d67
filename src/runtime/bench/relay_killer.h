// Kills or stops relays of a live broadcast, or nodes of a live reduction, and counts what the
// repair cost: what --kill of the benchmark does.
//
// The victims are read from the directory's live tree: nodes that receive, have `fraction` of the
// object already, and have at least two descendants; of a reduction, nodes of slots that have
// folded `fraction` of it, with two slots or more below and two or more above. Their daemons must
// run on this machine, from this executable, started with their --name: no other process is ever
// killed. One thread, blocking.
#ifndef PHALANX_RUNTIME_BENCH_RELAY_KILLER_H_
#define PHALANX_RUNTIME_BENCH_RELAY_KILLER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "phalanx/object_id.h"
#include "src/directory/grpc/tools_client.h"
#include "src/runtime/bench/runner.h"

namespace phalanx::runtime::bench {

// The nodes to kill, those with the most descendants first; fewer than `count` when there are not
// so many.
std::vector<std::string> ChooseVictims(const v1::DescribeObjectResponse& tree, uint64_t size_bytes,
                                       double fraction, int count);

// The same of a reduction. Not those that compute two slots or more.
std::vector<std::string> ChooseReducers(const v1::ReductionDescription& tree, double fraction,
                                        int count);

// Whether these arguments of a process, each ended by a zero byte, are those of `phalanx node` with
// --name=`name`.
bool StartsNode(absl::string_view arguments, absl::string_view name);

// Tools around `client`, which outlives them. The killer waits until there are `count` victims;
// FailedPrecondition when it is over before, DeadlineExceeded when neither happens in
// two minutes, Unavailable when a victim's process is not such a node on this machine, or cannot
// be killed.
// `signal` is SIGKILL or SIGSTOP.
DirectoryTools MakeDirectoryTools(directory::ToolsClient& client, int count, double fraction,
                                  int signal);

}  // namespace phalanx::runtime::bench

#endif  // PHALANX_RUNTIME_BENCH_RELAY_KILLER_H_
