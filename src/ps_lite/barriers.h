// Barriers: the keeper's (Settings) list of processes that have started, and of those that wait in
// barriers. Pure; one thread at a time.
//
// A process counts as often as customers of it have called Start, and all of these are waited for.
// A process that has left is waited for no more.
#ifndef PHALANX_PS_LITE_BARRIERS_H_
#define PHALANX_PS_LITE_BARRIERS_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/ps_lite/peer.h"

namespace phalanx::ps_lite {

// Which calls of a process have ended. Each has a number of its own.
struct Release {
  Peer to;
  std::vector<int> calls;
};

class Barriers {
 public:
  // How many of each role the job has.
  Barriers(int schedulers, int servers, int workers) : missing_{schedulers, servers, workers} {}

  // A customer of `from` has called Start. Returns the calls of all when the last one has come.
  // Sets `wrong` if there are more than the job has.
  std::vector<Release> Start(Peer from, int call, std::string* wrong);
  bool started() const { return missing_[0] + missing_[1] + missing_[2] == 0; }
  // The processes with the role, by rank.
  std::vector<int> Ranks(Role role) const;
  // "1 server, 2 workers", for errors.
  std::string Missing() const;

  // A customer of `from` waits for the group. A call that comes again counts once. Returns those
  // that have ended.
  std::vector<Release> Arrive(Peer from, int call, int group);
  // Also those of others.
  std::vector<Release> Leave(Peer peer);

 private:
  std::vector<Release> ReleaseIfComplete(int group);

  int missing_[3];              // starts, by role
  std::map<Peer, int> starts_;  // of those that have not left
  std::vector<Release> starting_;
  std::map<int, std::map<Peer, std::set<int>>> waiting_;  // by group
};

}  // namespace phalanx::ps_lite

#endif  // PHALANX_PS_LITE_BARRIERS_H_
