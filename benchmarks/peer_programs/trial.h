// Code that the programs of all peers share: command line, common start, inputs, verification,
// records.
//
// Each rank is a process that implements Peer for its library and calls RunTrial. Ranks agree on
// barriers and start times through one file in memory that all ranks map (their emulated hosts are
// one machine), so that the rendezvous costs every peer the same and uses no shaped link. One
// thread.
#ifndef PHALANX_BENCHMARKS_PEER_PROGRAMS_TRIAL_H_
#define PHALANX_BENCHMARKS_PEER_PROGRAMS_TRIAL_H_

#include <cstddef>
#include <string>
#include <vector>

namespace phalanx::benchmarks {

// One op, algorithm and size, run several times.
struct Step {
  // The op's name in the plan and the records: that below, or "group_" and that.
  std::string name;
  // broadcast, reduce, gather (all with root 0), allreduce, allgather, barrier; pair: from rank 0
  // to rank 1.
  std::string op;
  // "default" is the peer's own choice; other names are for the records and for the peer.
  std::string algorithm;
  size_t size = 0;
  // Calls in a run, one after the other on the same buffers; the seconds of a run are their mean.
  int calls = 1;
  int warmup = 0;
  int runs = 1;
  // Stop after a run that took more than this many times the smallest median of the same op and
  // size so far; that run still counts. 0: never stop.
  double patience = 0;
  // "name=value,name=value" in the peer's own terms; "-" for none.
  std::string settings;
};

struct TrialOptions {
  int world = 1;
  int rank = 0;
  // A zeroed file of kMeetingBytes that all ranks map; new for every trial.
  std::string meeting;
  // An empty folder of the trial, for a library that needs one to find its other ranks.
  std::string store;
  // Rank 0 writes its records to this file, one JSON object per line.
  std::string output;
  // Addresses of all ranks' hosts.
  std::vector<std::string> hosts;
  std::vector<Step> plan;
};

constexpr size_t kMaxWorld = 1024;
constexpr size_t kMeetingBytes = 64 << 10;

// Parses the flags --world, --rank, --meeting, --store, --output, --hosts, each followed by its
// value, and --plan: a file with one step per line, its members in the order of Step, separated by
// blanks. Ends the process if a flag is invalid.
TrialOptions ParseTrialOptions(int argc, char** argv);

// One rank of a library with collective operations on floats.
class Peer {
 public:
  virtual ~Peer() = default;

  // Prepares, outside the clock, to perform the step on these buffers of floats, which live until
  // the next Prepare. `in` has size/4 floats; `out` has as many, or world times as many for gather
  // (on rank 0) and allgather. A broadcast does not use `in` and works in place on `out`.
  virtual void Prepare(const Step& step, const float* in, float* out) = 0;

  // Performs the op once. Returns when this rank has its result. Ends the process on an error.
  virtual void Perform() = 0;

  // For a library that moves bytes only while it is called: moves them. Returns false if the
  // library needs no call. Without this call, bytes that a rank has queued when its own part is
  // done would never be sent.
  virtual bool Progress() { return false; }
};

// Runs the plan and writes the records. Returns the exit status: 0 if every byte was right.
int RunTrial(const TrialOptions& options, Peer& peer);

}  // namespace phalanx::benchmarks

#endif  // PHALANX_BENCHMARKS_PEER_PROGRAMS_TRIAL_H_
