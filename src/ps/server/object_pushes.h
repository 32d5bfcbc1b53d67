// ObjectPushes: the pushes of one table that are objects of the store and are not in the rows yet.
//
// Such an object dies with its worker. So a worker's place is safe up to its first one: its next
// life begins there, and pushes it again under the same position, as another object.
//
// Pure. Belongs to a ServerTable. One thread at a time.
#ifndef PHALANX_PS_SERVER_OBJECT_PUSHES_H_
#define PHALANX_PS_SERVER_OBJECT_PUSHES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "src/ps/sync_core.h"

namespace phalanx::ps::internal {

class ObjectPushes {
 public:
  using Token = SyncCore::Token;
  struct One {
    int worker = 0;
    Position at = {};
    Position before = {};  // of the worker, without this push
    uint64_t life = 0;     // of the worker that has pushed this object
    std::string handle = {};
  };

  explicit ObjectPushes(int workers) : by_worker_(workers) {}

  void Add(Token token, One push);
  // The worker has pushed it again, as this object: the token, if there is one at this position and
  // it was another object.
  std::optional<Token> Replace(int worker, const Position& at, uint64_t life,
                               absl::string_view handle);
  bool Has(int worker, const Position& at) const { return by_worker_[worker].at.contains(at); }
  // The one at this position, if a life of the worker before this one has made it.
  std::optional<Token> Earlier(int worker, const Position& at, uint64_t life) const;
  // The last position of the worker before this one and in its clock; none: there is no such push.
  std::optional<Position> Before(int worker, const Position& at) const;
  // Null: none.
  const One* Find(Token token) const;
  // It is in the rows, or does not count.
  void Erase(Token token);
  void Clear();

  // The place of the worker without its first one; none: it has no push here.
  std::optional<Position> SafeOf(int worker) const;
  // How many the worker has in the clock of `at` when this life pushes there: those of lives before
  // it that are before `at` are none then.
  uint64_t CountFor(int worker, uint64_t life, const Position& at) const;
  std::vector<Token> Of(int worker) const;
  // Those of lives of the worker before this one, and of positions before `at`.
  std::vector<Token> Older(int worker, uint64_t life, const Position& at) const;
  bool empty() const { return pushes_.empty(); }
  size_t size() const { return pushes_.size(); }

 private:
  struct OfWorker {
    std::map<Position, Token> at = {};
    uint64_t life = 0;  // the newest one of these pushes, or of earlier ones
    size_t of_life = 0;
  };

  // The push is of this life from now on.
  void Count(One& push, uint64_t life);

  absl::flat_hash_map<Token, One> pushes_;
  std::vector<OfWorker> by_worker_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_SERVER_OBJECT_PUSHES_H_
