// BootWorld: ranks of a session before Load, each a SessionCore, beside a model of their group,
// with deaths. Testonly.
//
// The ranks run a random program of calls, with names and without, of one to three calls of the
// group each; then they load, and make a few calls more. At each step, one rank goes on, or dies,
// or begins a next life. A next life makes the calls that have ended in another order, leaves some
// of those with names out, and makes the others in between, in their order.
//
// The model of the group. A call in which every rank gives something ends after all ranks have made
// it; a Broadcast after its root has. A life that joins learns the last call that has ended, and
// what the newest of them has said that was no Broadcast. Results are kept while a rank lives.
//
// Checked: that each call has the result of a run without deaths, that ranks that make a call make
// the same one and say the same in it, and that every run ends.
//
// Owned by a test. One thread.
#ifndef PHALANX_CLIENT_SPMD_TESTING_BOOT_WORLD_H_
#define PHALANX_CLIENT_SPMD_TESTING_BOOT_WORLD_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "src/client/spmd/session_core.h"
#include "src/common/random.h"

namespace phalanx::spmd::testing {

class BootWorld {
 public:
  struct Counts {
    uint64_t deaths = 0;
    uint64_t repeated = 0;  // calls of the group
    uint64_t early = 0;     // named calls, made before others that the first life made before them
    uint64_t left_out = 0;  // named calls
    uint64_t runs = 0;      // that began anew
  };

  explicit BootWorld(uint64_t seed);
  // Runs to the end of all ranks, and returns what was wrong.
  std::vector<std::string> Run();
  const Counts& counts() const { return counts_; }

 private:
  struct Step {
    std::string name;
    std::vector<bool> needs_all;  // of each of its calls of the group
  };
  struct Life {
    internal::SessionCore core;
    std::deque<size_t> to_do = {};  // steps
    size_t part = 0;                // of the first one
    bool in_call = false;
    bool in_record = false;
  };
  // A call of the group.
  struct Call {
    std::string what;
    bool needs_all = true;
    int root = 0;
    internal::SessionKeep keep;
    std::optional<internal::NameRecord> record;
    bool ended = false;
  };

  void Join(int rank);
  std::deque<size_t> Order();
  bool HasEnded(size_t step) const;
  void Die(int rank);
  void Advance(int rank);
  void Begin(int rank);
  void Make(int rank, const Call& call);
  void TryEnd(int rank);
  void End(int rank, const Call& call);
  bool MakesCall(int rank, uint64_t number) const;
  void Wrong(int rank, absl::string_view what);

  Random random_;
  double death_chance_ = 0;
  std::vector<Step> steps_;  // the first is that of Join; empty at Load
  size_t load_ = 0;
  std::vector<std::optional<Life>> lives_;  // by rank
  std::map<uint64_t, Call> calls_;          // by number
  std::vector<std::string> wrong_;
  Counts counts_;
};

}  // namespace phalanx::spmd::testing

#endif  // PHALANX_CLIENT_SPMD_TESTING_BOOT_WORLD_H_
