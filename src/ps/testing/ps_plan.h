// PsPlan: the tables and the programs of a run of PsWorld, and PsOracle, which knows what each pull
// may have. Testonly.
//
// The rows of a table of integers have an element for each worker and clock, and a byte of it for
// each push of that clock: a row shows exactly which pushes are in it, and how often. Tables of
// floats are BSP, and get 1e8, 1 and -1e8: another order has other bits.
//
// In an exact plan each clock begins with pulls of all tables of floats, and what is pushed to
// these depends on every bit that was pulled. Workers die, or servers: the tables are those of a
// serial replay.
//
// Some turns of these tables are ring sums (rows/ring_sums.h), which have an order of their own.
//
// In a plan with objects the tables that can be are object tables (rows/object_parts.h), and some
// pushes and pulls are of all keys. If it is exact, it has one table of floats: of two the next
// life can find one a clock ahead, if what it has pushed to the other is lost with its host.
//
// Values and pure functions. One thread.
#ifndef PHALANX_PS_TESTING_PS_PLAN_H_
#define PHALANX_PS_TESTING_PS_PLAN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "phalanx/ps_table.h"
#include "src/common/random.h"
#include "src/ps/ps_wire.h"

namespace phalanx::ps::testing {

struct PsPlan {
  enum class Kind { kPush, kPull, kPushPull, kRequest, kWait };
  struct Step {
    Kind kind = Kind::kWait;
    uint32_t table = 0;
    uint32_t push = 0;  // the number of a push in its clock, from 1
    std::vector<Key> keys = {};
    int server = 0;       // of a request
    bool cancel = false;  // after a while, a pull
    bool basis = false;   // a pull on which the pushes of the clock depend
    bool dense = false;   // a push or pull of all keys, by object if the table has these
  };
  struct Chances {
    double worker_dies = 0;    // of a fault
    double dies_at_clock = 0;  // a worker, soon after it has ended a clock
    double server_dies = 0;
    double store_fails = 0;
    int faults = 0;
  };

  explicit PsPlan(uint64_t seed) : PsPlan(seed, false) {}
  // An exact one, without faults.
  static PsPlan Exact(uint64_t seed) { return {seed, true}; }

  uint64_t seed;
  bool exact = false;
  bool objects = false;
  bool awaits = false;  // servers have ServerCore::Options::awaits_workers
  bool rings = false;   // most turns can be ring sums
  int servers = 0;
  int workers = 0;
  uint64_t clocks = 0;              // the most of a worker; worker 0 makes so many
  std::vector<uint64_t> clocks_of;  // by worker; one with fewer leaves before the others
  std::vector<TableSpec> tables;
  std::vector<std::vector<std::vector<Step>>> steps;  // by worker and clock
  Chances chances;

  bool IsCounts(uint32_t table) const { return tables[table].dtype == DType::kI64; }
  std::vector<Key> AllKeys(uint32_t table) const;
  // Of a table with Split::kOwn, the servers of keys, as its slicer says; of others nothing.
  std::vector<int32_t> ServersOf(uint32_t table, const std::vector<Key>& keys) const;
  // The least part of an object table.
  uint64_t object_bytes() const { return objects ? 1 : uint64_t{1} << 40; }
  // Of the pieces of calls: one or two rows, or all of them.
  uint64_t batch_bytes() const { return seed % 3 == 0 ? internal::kBatchBytes : seed % 3 * 40; }
  // So slow that others come as far ahead of it as the table lets them.
  bool IsSlow(int worker) const { return seed % 5 == 2 && worker + 1 == workers; }
  // Of one answer with lengths: a row or two, or all of them.
  uint64_t answer_bytes() const { return seed % 2 == 0 ? internal::kBatchBytes : seed % 11 * 20; }
  // Of a server's answers for a worker that have not left: one, some, or all.
  uint64_t unsent_bytes() const { return seed % 4 == 0 ? uint64_t{1} << 20 : seed % 4 * 60; }
  // The least slice of a ring sum.
  uint64_t ring_bytes() const { return 64; }
  bool PushesObject(const Step& step) const;
  // The values of a push. `basis` is of what the clock's pulls have had; 0 unless the plan is
  // exact.
  std::string ValuesOf(int worker, uint64_t clock, const Step& step, uint64_t basis) const;
  // Of a row whose length is the table's width.
  size_t RowBytes(uint32_t table) const;
  // Of the rows of a push; nothing, if those of the table have no lengths.
  std::vector<uint32_t> LengthsOf(int worker, uint64_t clock, const Step& step) const;
  // What was pulled, as rows of the table's width with zeros behind.
  std::string Filled(uint32_t table, const internal::RowData& pulled) const;
  uint32_t LengthOf(uint32_t table, int worker, uint64_t clock, uint32_t push, Key key) const;

 private:
  PsPlan(uint64_t seed, bool exact_only);
  void DrawTable(Random& random);
  std::vector<Step> DrawSteps(Random& random, double more_pushes);
  std::vector<Key> DrawKeys(Random& random, uint32_t table) const;
};

// Of one table at a clock, all bits of its rows in the order of keys; and of all tables of floats.
uint64_t BasisOf(absl::string_view rows);
uint64_t BasisOf(const std::vector<uint64_t>& tables);

class PsOracle {
 public:
  explicit PsOracle(const PsPlan& plan);

  // A life makes this push.
  void Made(uint32_t table, int worker, uint64_t clock, uint32_t push);
  // The call of this push has ended with OK: with PsPlan::awaits no pull that begins now is without
  // it, as long as its worker lives.
  void Done(uint32_t table, int worker, uint64_t clock, uint32_t push);
  // Of pushes that are done, to be kept in Read::done.
  uint64_t done() const { return done_.size(); }
  // The worker has died once: tables with kDrop can be without some of its pushes.
  void Died(int worker) { died_.insert(worker); }

  struct Read {
    uint32_t table = 0;
    int worker = 0;
    uint64_t clock = 0;
    uint64_t begun = 0;         // the first clock of this life
    uint32_t own = 0;           // pushes of this life in the clock before the pull
    uint64_t latest_clock = 0;  // with kBsp the state can be that of a clock up to this
    bool last = false;          // all workers have ended all their clocks
    uint64_t done = 0;          // PsOracle::done() when it began
    std::vector<Key> keys = {};
  };
  // Returns what is wrong with what was pulled, or an empty text. Rows with lengths are filled up
  // with zeros, and `lengths` has what they were.
  std::string Check(const Read& read, const std::string& bytes,
                    const std::vector<uint32_t>& lengths = {}) const;

 private:
  std::string CheckCounts(const Read& read, Key key, const char* row) const;
  std::string CheckLength(const Read& read, Key key, const char* row, uint32_t length) const;
  std::string CheckFloats(const Read& read, Key key, const char* row) const;
  // Makes the clock that is after all in floats_.
  void Replay(uint64_t clock);
  // What is pushed to a key in a clock, as (worker, push), in the order of the sum; nothing stands
  // for its value before that.
  using Addends = std::vector<std::optional<std::pair<int, uint32_t>>>;
  Addends AddendsOf(uint32_t table, Key key, uint64_t clock) const;
  // Objects of the clock, and whether the server gets pushes with keys in it.
  std::vector<std::pair<int, uint32_t>> ObjectsOf(uint32_t table, uint64_t clock) const;
  bool HasKeys(uint32_t table, int server, uint64_t clock) const;
  bool Drops(uint32_t table, int worker) const;
  bool MustHave(const Read& read, int worker, uint64_t clock, uint32_t push) const;

  const PsPlan& plan_;
  std::set<int> died_;
  std::set<std::tuple<uint32_t, int, uint64_t, uint32_t>> made_;
  // As made_: the number in the order in which they were done, from 1.
  std::map<std::tuple<uint32_t, int, uint64_t, uint32_t>, uint64_t> done_;
  // Pushes of a key: (table, key), then worker, clock, number.
  std::map<std::pair<uint32_t, Key>, std::set<std::tuple<int, uint64_t, uint32_t>>> pushes_;
  // Those that are objects: table, worker, clock, number.
  std::set<std::tuple<uint32_t, int, uint64_t, uint32_t>> objects_;
  // Pushes with keys, of dense tables: table, server, clock.
  std::set<std::tuple<uint32_t, int, uint64_t>> with_keys_;
  // Of tables of floats, by table and key: the value at the beginning of each clock.
  std::map<std::pair<uint32_t, Key>, std::vector<float>> floats_;
};

}  // namespace phalanx::ps::testing

#endif  // PHALANX_PS_TESTING_PS_PLAN_H_
