// Barriers: the keeper's (Settings) list of processes that have started, and of those that wait in
// barriers. Pure; one thread at a time.
//
// A process counts as often as customers of it have called Start, and all of these are waited for.
// A process that has left is waited for no more.
//
// A server can have a next life. What the one before waited for is forgotten. The next life starts
// at once if all had started. It has to make the same barriers again, from the first one on: as
// many calls for a group as have ended for a life before end at once, whatever the program means by
// them.
#ifndef PHALANX_PS_LITE_KEEPER_BARRIERS_H_
#define PHALANX_PS_LITE_KEEPER_BARRIERS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/ps_lite/peer.h"

namespace phalanx::ps_lite {

// Which calls of a life of a process have ended. Each has a number of its own.
struct Release {
  Peer to;
  uint64_t life;
  std::vector<int> calls;
};

class Barriers {
 public:
  // How many of each role the job has.
  Barriers(int schedulers, int servers, int workers) : missing_{schedulers, servers, workers} {}

  // To be called before other calls for a life of a process. Returns false if it is an older one
  // than the newest, whose calls do not count.
  bool Hear(Peer peer, uint64_t life);
  // This life has died.
  void Die(Peer peer, uint64_t life);

  // A customer of `from` has called Start. Returns the calls of all when the last one has come.
  // Sets `wrong` if there are more than the job has.
  std::vector<Release> Start(Peer from, int call, std::string* wrong);
  bool started() const { return missing_[0] + missing_[1] + missing_[2] == 0; }
  // The processes with the role, by rank.
  std::vector<int> Ranks(Role role) const;
  // "1 server, 2 workers", for errors.
  std::string Missing() const;

  // A customer of `from` waits for the group; `last`: in Finalize. A call that comes again counts
  // once. Returns those that have ended.
  std::vector<Release> Arrive(Peer from, int call, int group, bool last = false);
  // Also those of others.
  std::vector<Release> Leave(Peer peer);

 private:
  struct Call {
    int group;
    bool last;
    auto operator<=>(const Call&) const = default;
  };
  struct Process {
    uint64_t life = 0;
    int starts = 0;
    int restarts = 0;  // how many calls of Start of a next life end at once
    bool left = false;
    // How many barriers have ended for it; how many calls have, for its newest life.
    std::map<Call, int> ended;
    std::map<Call, int> passed;
  };
  struct Waiting {
    std::set<int> calls;
    bool last = false;
  };

  // Those that have started and have not left.
  bool Counts(const Process& process) const { return process.starts > 0 && !process.left; }
  std::vector<Release> ReleaseIfComplete(int group);
  // Its life waits for nothing.
  void Forget(Peer peer, Process& process);

  int missing_[3];  // starts, by role
  std::map<Peer, Process> processes_;
  std::vector<Release> starting_;
  std::map<int, std::map<Peer, Waiting>> waiting_;  // by group
};

}  // namespace phalanx::ps_lite

#endif  // PHALANX_PS_LITE_KEEPER_BARRIERS_H_
