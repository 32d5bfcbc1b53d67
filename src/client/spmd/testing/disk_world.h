// DiskWorld: a job whose checkpoints are on disks too, and whose ranks all die now and then, with
// the rules of disk_runs.h. Testonly.
//
// Each host has a disk, or all share one. A run: the ranks join, agree in Load on a file (their
// parts of a call that has not ended go with their lives; what has ended is repeated), write the
// first file of the run, write more versions, free them as early as SessionCore lets them, and
// leave. At any step a rank dies, or a host with its ranks, which can lose the file that it has not
// synced yet, or all ranks die: then the job begins anew, on the same hosts or others. A next life
// can be on another host, and leaves files where it was. (What the store keeps in memory is not
// modelled: a next life gets the models of its version as long as another rank lives.) Now and then
// a file is damaged while no rank lives.
//
// A model is a number that comes from the one before it and the run, a local model also from the
// rank. So models of two runs, or of two versions, differ.
//
// Checked: what is loaded is the newest that the rules know, looked up among all files with what
// the world knows of their runs; that all ranks load it; what all ranks have written is not lost as
// long as their disks are there; and a run that has ended is not gone on from where one of its
// ranks has left.
//
// Owned by a test. One thread.
#ifndef PHALANX_CLIENT_SPMD_TESTING_DISK_WORLD_H_
#define PHALANX_CLIENT_SPMD_TESTING_DISK_WORLD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "src/client/spmd/disks/disk_runs.h"
#include "src/common/random.h"

namespace phalanx::spmd::testing {

class DiskWorld {
 public:
  struct Counts {
    uint64_t deaths = 0;
    uint64_t runs = 0;
    uint64_t restored = 0;     // runs that have gone on from a file
    uint64_t passed_over = 0;  // runs that had ended in Load
    uint64_t missing = 0;      // Loads that have failed
    uint64_t ended = 0;        // runs
    uint64_t stale = 0;        // Loads that have seen files of runs that had ended
  };

  explicit DiskWorld(uint64_t seed);
  // Returns what was wrong.
  std::vector<std::string> Run();
  const Counts& counts() const { return counts_; }

 private:
  enum class Phase { kJoin, kOffer, kRead, kSend, kFirst, kWrote, kLoad, kWork, kWrite, kLeave };
  struct File {
    internal::DiskFile name;
    size_t run = 0;  // of runs_
    bool first = false;
    bool whole = true;
    uint64_t model = 0;
    uint64_t local = 0;
  };
  struct Mark {
    internal::DiskRun name;
    size_t run = 0;
  };
  struct Disk {
    std::vector<File> files;
    std::vector<Mark> marks;       // that the ranks have written
    std::vector<Mark> true_marks;  // that they should have
  };
  struct Part {
    internal::DiskOffer offer;
    uint64_t place = 0;  // in Join
  };
  struct Call {
    std::vector<std::optional<Part>> parts;  // by rank
    bool ended = false;
  };
  struct Life {
    int host = 0;
    Phase phase = Phase::kJoin;
    size_t call = 0;
    internal::DiskRun before;
    bool passed_over = false;
    std::vector<internal::DiskRun> marks;  // that ranks have said that they see
    std::optional<internal::DiskChoice> choice;
    std::optional<File> file;
    uint64_t version = 0;
    int written = 0;  // 1: the file of version `writes` is there, and not synced. 2: left
    uint64_t writes = 0;
    std::optional<File> replaced;  // by that
    std::optional<uint64_t> freed;
  };
  // What a rank has on a disk.
  struct Returned {
    uint64_t version = 0;
    size_t disk = 0;
  };
  struct JobRun {
    internal::DiskRun name;
    uint64_t number = 0;  // as it should be
    std::vector<Call> calls = {};
    std::optional<internal::DiskChoice> expected = {};
    bool moved = false;  // a rank has seen another disk since all have joined
    uint64_t started = 0;
    bool restored = false;
    bool lives = false;  // a rank has had a next life
    std::optional<File> sent = {};
    std::map<uint64_t, uint64_t> models = {};  // by version
    std::vector<bool> loaded = {};
    std::vector<uint64_t> passed = {};
    uint64_t freed = 0;  // versions up to this one
    std::vector<std::optional<Returned>> returned = {};
    std::vector<bool> came = {};
    std::vector<bool> gone = {};
    std::vector<bool> born = {};
    bool called = false;  // after Load
  };
  // A model that all ranks have on these disks.
  struct Kept {
    size_t run = 0;
    uint64_t version = 0;
    uint64_t model = 0;
    std::vector<size_t> disks;  // by rank
  };
  // The order of runs, as it should be.
  using Key = std::tuple<uint64_t, uint32_t, uint64_t>;

  size_t world() const { return lives_.size(); }
  JobRun& run() { return runs_.back(); }
  size_t DiskOf(int host) const { return shared_ ? 0 : static_cast<size_t>(host); }
  Disk& DiskAt(size_t rank) { return disks_[DiskOf(lives_[rank]->host)]; }
  Key KeyOf(size_t run) const;
  bool Reads(size_t rank, const File& file) const;

  void BeginRun();
  bool HasKept(size_t rank) const;
  void Fault();
  void EndRank(size_t rank, bool host);
  void EndAll();
  // Load has failed on all ranks.
  void Fail();
  void Join(size_t rank);
  void Step(size_t rank);
  // Gives this rank's part, unless the call has ended. Returns whether it has.
  bool Ends(size_t rank, const std::function<Part()>& part);
  void EndJoin();
  internal::DiskMarks MarksAt(size_t rank);
  internal::DiskOffer OfferOf(size_t rank);
  void Offer(size_t rank);
  // What they are to choose.
  void Expect();
  bool TrulyEnded(size_t run);
  void CheckChoice(const internal::DiskChoice& choice);
  void CheckNothingKept();
  // Of the run, on the disk of the rank's host.
  File* FileOf(size_t rank, uint64_t version);
  bool ComesFrom(uint64_t model, uint64_t earlier) const;
  void Read(size_t rank);
  void Send(size_t rank);
  // Returns whether the file is there, and synced.
  bool Write(size_t rank, uint64_t version, bool first);
  void EndLoad(size_t rank);
  void Work(size_t rank);
  void Free(size_t rank);
  void Leave(size_t rank);
  void Wrong(const std::string& what);

  Random random_;
  bool shared_ = false;
  bool local_ = false;
  double fault_ = 0;
  double moves_ = 0;
  uint64_t versions_ = 0;
  std::vector<Disk> disks_;
  std::vector<std::optional<Life>> lives_;
  std::vector<int> hosts_;  // of the last life of each rank
  std::vector<JobRun> runs_;
  std::map<uint64_t, uint64_t> parents_;  // of models
  std::optional<Kept> kept_;
  std::vector<std::string> wrong_;
  Counts counts_;
};

}  // namespace phalanx::spmd::testing

#endif  // PHALANX_CLIENT_SPMD_TESTING_DISK_WORLD_H_
