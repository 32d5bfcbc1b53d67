// KeptPushes: the pushes with keys of one table with kBsp, of clocks that have not turned.
//
// Pure. Belongs to a ServerTable. One thread at a time.
#ifndef PHALANX_PS_SERVER_KEPT_PUSHES_H_
#define PHALANX_PS_SERVER_KEPT_PUSHES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "src/ps/key_lists.h"
#include "src/ps/sync_core.h"

namespace phalanx::ps::internal {

class KeptPushes {
 public:
  using Token = SyncCore::Token;
  struct One {
    int worker = 0;
    Position at = {};
    uint64_t life = 0;  // of the worker; 0 in what was restored
    KeyList keys = {};
    std::string values = {};
  };

  // One with this token, or of this worker and position, is replaced.
  void Add(Token token, One push);
  // Null: none.
  const One* Find(Token token) const;
  bool Has(Token token) const { return pushes_.contains(token); }
  // The one at this position, if a life of the worker before this one has made it.
  std::optional<Token> Earlier(int worker, const Position& at, uint64_t life) const;
  // The last position of the worker before this one and in its clock; none: there is no such push.
  std::optional<Position> Before(int worker, const Position& at) const;
  void Erase(Token token);
  void Clear();
  size_t size() const { return pushes_.size(); }

 private:
  absl::flat_hash_map<Token, One> pushes_;
  std::map<std::pair<int, Position>, Token> places_;
};

}  // namespace phalanx::ps::internal

#endif  // PHALANX_PS_SERVER_KEPT_PUSHES_H_
