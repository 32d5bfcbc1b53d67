// What the programs of all peers share: command line, common start, inputs, verification, records.
//
// Each rank is a process that implements Peer for its library and calls RunTrial. Ranks agree on
// barriers and starts through one file in memory that all map (their emulated hosts are one
// machine), so that the meeting costs every peer the same and crosses no shaped link. One thread.
#ifndef PHALANX_BENCHMARKS_PEER_PROGRAMS_TRIAL_H_
#define PHALANX_BENCHMARKS_PEER_PROGRAMS_TRIAL_H_

#include <cstddef>
#include <string>
#include <vector>

namespace phalanx::benchmarks {

// One op, algorithm and size, run several times.
struct Step {
  // broadcast, reduce, gather (all with root 0), allreduce, allgather; pair: from rank 0 to rank 1.
  std::string op;
  // "default" is what the peer chooses itself; others are for the records and for the peer.
  std::string algorithm;
  size_t size = 0;
  int warmup = 0;
  int runs = 1;
  // Stop after a run that took much more than so many times the least median of the same op and
  // size so far; it is counted then. 0: never.
  double patience = 0;
  // "name=value,name=value", which the peer understands; "-" for none.
  std::string settings;
};

struct TrialOptions {
  int world = 1;
  int rank = 0;
  // Zeroed file of kMeetingBytes that all ranks map; new for every trial.
  std::string meeting;
  // An empty folder of the trial, for a library that needs one to find its other ranks.
  std::string store;
  // Rank 0 writes its records there, one JSON object per line.
  std::string output;
  // Addresses of all ranks' hosts.
  std::vector<std::string> hosts;
  std::vector<Step> plan;
};

constexpr size_t kMaxWorld = 1024;
constexpr size_t kMeetingBytes = 64 << 10;

// The flags --world, --rank, --meeting, --store, --output, --hosts, each followed by its value, and
// --plan: a file with one step per line, its members in the order of Step, separated by blanks.
// Ends the process when one is not understood.
TrialOptions ParseTrialOptions(int argc, char** argv);

// One rank of a library that knows collective operations on floats.
class Peer {
 public:
  virtual ~Peer() = default;

  // Makes ready, outside the clock, to perform the step on these buffers of floats, which live
  // until the next Prepare. `in` has size/4 of them; `out` has as many, or world times as many for
  // gather (on rank 0) and allgather. A broadcast leaves `in` alone and works in place on `out`.
  virtual void Prepare(const Step& step, const float* in, float* out) = 0;

  // The op, once; returns when this rank has what it is owed. Ends the process when it fails.
  virtual void Perform() = 0;

  // For a library that moves bytes only while it is called: moves them. False: it needs no call.
  // Without it, what a rank has left in a queue when its own part is done would never be sent.
  virtual bool Progress() { return false; }
};

// Runs the plan and writes the records. The exit status: 0 if every byte was right.
int RunTrial(const TrialOptions& options, Peer& peer);

}  // namespace phalanx::benchmarks

#endif  // PHALANX_BENCHMARKS_PEER_PROGRAMS_TRIAL_H_
