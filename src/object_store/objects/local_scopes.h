// What this node knows of scopes: which have ended, and which of its copies are in which scope.
// Pure.
//
// A scope that has ended refuses Puts and Gets here, and is registered at a shard that has lost its
// memory. One record for each name is enough, with the greatest number that has ended: to end a
// number ends all smaller ones. Records are kept for kEndedScopeAge, at most `max_ended` of them;
// the one that ended first goes first.
//
// Thread rule: no thread, lock or clock inside. Owned by the store, on the control loop.
#ifndef PHALANX_OBJECT_STORE_OBJECTS_LOCAL_SCOPES_H_
#define PHALANX_OBJECT_STORE_OBJECTS_LOCAL_SCOPES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "phalanx/object_id.h"
#include "phalanx/scope.h"
#include "src/common/ids/ids.h"
#include "src/common/time/instant.h"

namespace phalanx::object_store {

// As long as the shards keep their tombstones and their records of scopes.
inline constexpr absl::Duration kEndedScopeAge = absl::Minutes(10);

class LocalScopes {
 public:
  // The generation of an object.
  using Entry = std::pair<ObjectId, Generation>;

  explicit LocalScopes(size_t max_ended) : max_ended_(max_ended) {}

  // ---- ended scopes
  // A shard has said that the scope and those with smaller numbers have ended.
  void End(const Scope& scope, Instant now);
  // As remembered at `now`.
  bool HasEnded(const Scope& scope, Instant now) const;
  // With the greatest number of each name that has ended.
  std::vector<Scope> Ended(Instant now);
  // OK, or NotFound if the scope has ended, for a Put.
  absl::Status Check(const Scope& scope, Instant now) const;

  // ---- copies
  // Do nothing if there is no scope.
  void Add(const Scope& scope, const ObjectId& id, const Generation& generation);
  void Remove(const Scope& scope, const ObjectId& id, const Generation& generation);
  // The copies in scopes of the name with a number of at most `scope.number`.
  std::vector<Entry> CopiesIn(const Scope& scope) const;

  size_t copies() const { return copies_; }

 private:
  struct Ending {
    uint64_t number = 0;
    Instant at;
  };
  // Forgets the records that are old.
  void Expire(Instant now);
  void Forget(const std::string& name);

  const size_t max_ended_;
  absl::btree_map<std::string, Ending> ended_;
  absl::btree_set<std::pair<Instant, std::string>> by_age_;
  absl::btree_map<std::string, absl::btree_map<uint64_t, absl::btree_set<Entry>>> scopes_;
  size_t copies_ = 0;
};

// The error of a Get, or of a writer, of an object whose scope has ended.
absl::Status EndedScopeStatus(const ObjectId& id, const Scope& scope);

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_OBJECTS_LOCAL_SCOPES_H_
