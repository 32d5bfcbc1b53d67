// WaitingPulls: the pulls of one table that have no answer yet, and the answers that are made.
//
//   waits for its clock ──► ready, behind those of its worker ──► answered
//
// The answer of a ready pull with keys is made when its worker has room for it (ServerCore), so
// that a server has a few answers for each worker in memory, and not those of all pulls that a
// clock has let go. Rows with lengths (TableSpec::lengths) can be several answers, each of which
// has the next rows of the pull: its rows alone bound how many. Answers are made sooner, whatever
// the room, before the rows change in a way that it must not show: with kBsp before the next turn,
// else before the next push of the same worker. But a pull that waits for other workers after a
// server's death (TurnQueue::Hold) is not ready before these have sent again what they keep: it can
// have later pushes of its own worker.
//
// Pure. Belongs to a ServerTable. One thread at a time.
#ifndef PHALANX_PS_SERVER_WAITING_PULLS_H_
#define PHALANX_PS_SERVER_WAITING_PULLS_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "phalanx/ps_table.h"
#include "src/ps/key_lists.h"
#include "src/ps/part.h"
#include "src/ps/ps_wire.h"
#include "src/ps/sync_core.h"

namespace phalanx::ps::internal {

class WaitingPulls {
 public:
  using Token = SyncCore::Token;
  struct Pull {
    int worker;
    uint64_t ticket;
    uint32_t piece;
    uint64_t clock;
    bool object = false;  // all keys of the part, by object
    KeyList keys = {};    // null: a run
    Key begin = 0;        // of a run
    uint64_t count = 0;
    uint64_t answered = 0;  // rows with lengths: how many answers have had
  };
  struct Answer {
    int worker;
    Values values;           // values.values and values.object are empty
    std::string bytes = {};  // of the table's wire type
    std::string object = {};
  };

  // `part` has to stay as long as this. An answer with rows that have lengths has at most
  // `answer_bytes`, or is one row.
  WaitingPulls(const TableSpec& spec, const Part& part, int workers, uint64_t answer_bytes)
      : spec_(spec),
        part_(part),
        answer_bytes_(answer_bytes),
        of_worker_(static_cast<size_t>(workers)) {}

  void Add(Token token, Pull pull);
  // Null: it was dropped, or taken.
  const Pull* Find(Token token) const;
  // Takes it out. REQUIRES: it is there.
  Pull Take(Token token);
  // It may be answered. REQUIRES: it is there, is ready for the first time, and is not by object.
  void MakeReady(Token token);
  // Makes the answer of the worker's first ready pull, or the next one of it, from the rows as they
  // are. Returns false if it has none.
  bool AnswerFirst(int worker, uint64_t min_clock);
  void AnswerAllOf(int worker, uint64_t min_clock);
  void AnswerAll(uint64_t min_clock);
  // An answer that was made elsewhere.
  void AddAnswer(Answer answer) { answers_.push_back(std::move(answer)); }

  // Of a worker whose channel has closed. Returns false if there was none.
  bool Drop(int worker);
  // Answers stay.
  void Clear();

  // That wait, or are ready.
  uint32_t of(int worker) const { return of_worker_[worker].pulls; }
  size_t ready(int worker) const { return of_worker_[worker].ready.size(); }
  bool has_ready() const { return !ready_.empty(); }
  size_t size() const { return pulls_.size(); }

  // Workers some of whose pulls have become ready since the last call of this.
  std::vector<int> TakeReadied();
  // Since the last call, in their order.
  std::vector<Answer> TakeAnswers() { return std::exchange(answers_, {}); }

 private:
  struct OfWorker {
    uint32_t pulls = 0;
    std::deque<Token> ready = {};  // in their order
  };

  // The keys of the next answer of a pull. Valid until the next call.
  absl::Span<const Key> KeysOf(const Pull& pull);
  std::string ReadRows(absl::Span<const Key> keys);
  // Sets `rows` to how many of the keys it has: one at least.
  std::string ReadLengthRows(absl::Span<const Key> keys, uint64_t& rows);

  const TableSpec& spec_;
  const Part& part_;
  const uint64_t answer_bytes_;
  absl::flat_hash_map<Token, Pull> pulls_;
  std::vector<OfWorker> of_worker_;
  std::set<int> ready_;    // workers with ready pulls
  std::set<int> readied_;  // since TakeReadied
  std::vector<Answer> answers_;
  // Of one answer.
  std::vector<Key> keys_;
  std::vector<uint32_t> lengths_;
  std::vector<char> elements_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_SERVER_WAITING_PULLS_H_
