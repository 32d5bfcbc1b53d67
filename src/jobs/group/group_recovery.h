// DecideResume: what becomes of the calls of a group after its list of members has changed. The
// coordinator, the node of the least live rank, decides from the reports of all nodes.
//
//   the call has ended ...                                    fate
//   on all nodes                                              none
//   with an error on one                                      kFail
//   with a result that is the same for all on one             kAdopt from the first such node
//   at the root of a Reduce; a Barrier on one                 kEnd
//   ReduceScatter, AllToAll on one, on_loss = wait            kRun: the members give the same again
//   ReduceScatter, AllToAll on one, else                      kFail: parts of two runs do not mix
//   nowhere with a result                                     kRun
//
// A member that enters hears what the newest call has said about results that are kept until they
// are released: of the calls that have ended on any node, up to the first one that the member
// makes, if that one runs again. So what it hears is never older than what a node has freed, or a
// member has got.
//
// Pure functions; any thread.
#ifndef PHALANX_JOBS_GROUP_GROUP_RECOVERY_H_
#define PHALANX_JOBS_GROUP_GROUP_RECOVERY_H_

#include <vector>

#include "src/jobs/group/group_wire.h"

namespace phalanx::jobs {

// `reports` by node. REQUIRES: at least one.
ResumeOrder DecideResume(const std::vector<NodeReport>& reports);

}  // namespace phalanx::jobs

#endif  // PHALANX_JOBS_GROUP_GROUP_RECOVERY_H_
