// FoldTree: folds the values of all ranks of a session along the tree of a FoldPlan. Each rank but
// the first puts what it has folded as objects, which its parent gets.
//
//   rank 6: folds its value, and what rank 7 has put  ──► puts ──► rank 4 gets, folds ...  ──► rank
//   0
//
// A piece that an earlier life of the rank has put stays; the rank's own is dropped. The objects
// are in a scope whose number is that of the call, and stay until all ranks have ended the call, so
// a next life of any rank can fold again.
//
// A rank asks for the next three pieces at a time, in the order in which it folds them. So a node
// has room for what its ranks put, and for three pieces of each of them.
//
// A rank that cannot fold or wait any longer puts its error instead, and its parent passes it on,
// so rank 0 has the error.
//
// Owned by a call of a session. One thread.
#ifndef PHALANX_CLIENT_SPMD_FOLD_TREE_H_
#define PHALANX_CLIENT_SPMD_FOLD_TREE_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "phalanx/client.h"
#include "phalanx/job.h"
#include "src/client/spmd/fold_plan.h"
#include "src/common/time/clock.h"

namespace phalanx::spmd::internal {

class FoldTree {
 public:
  // What the call does with a piece of this rank's value.
  struct Value {
    // Folds what a child has put into it.
    absl::FunctionRef<absl::Status(uint64_t piece, absl::string_view bytes)> add;
    // Its bytes, now that they are folded. They stay as they are until the next call of `get`.
    absl::FunctionRef<absl::string_view(uint64_t piece)> get;
  };

  // `look` is called while it waits, and returns whether it is to be called again.
  FoldTree(Client& client, const Membership& member, const FoldPlan& plan, Scope scope,
           absl::Duration patience, absl::FunctionRef<bool()> look);
  // Cancels what it still waits for. The client does not remember the names of the objects.
  ~FoldTree();
  FoldTree(const FoldTree&) = delete;
  FoldTree& operator=(const FoldTree&) = delete;

  // Returns when this rank's value is folded, and put unless it is rank 0. Errors: those of `add`,
  // those that children have put, DeadlineExceeded (names the rank that has not put anything),
  // ResourceExhausted. They name the rank where they arise. Rank 0 alone has to pass the error on.
  absl::Status Climb(const Value& value);

 private:
  ObjectId IdOf(int rank, uint64_t piece);
  void AskAhead();
  absl::Status FoldPiece(uint64_t piece, const Value& value);
  absl::Status Take(int child, uint64_t piece, const Value& value);
  absl::Status WaitsFor(int rank) const;
  // An error of this rank's.
  absl::Status Named(const absl::Status& why) const;
  void Put(uint64_t piece, absl::string_view bytes);
  void PutError(uint64_t piece, const absl::Status& why);
  absl::Status EndPuts();

  Client& client_;
  const Membership& member_;
  const FoldPlan& plan_;
  const Scope scope_;
  const Instant until_;
  const absl::FunctionRef<bool()> look_;
  const std::vector<int> children_;
  std::deque<Future<Buffer>> asked_;  // in the order of the folds
  uint64_t next_asked_ = 0;           // in that order
  std::vector<Future<PutResult>> puts_;
  std::vector<ObjectId> named_;
};

}  // namespace phalanx::spmd::internal

#endif  // PHALANX_CLIENT_SPMD_FOLD_TREE_H_
