// The requests that the node has not answered, each with its call, and the deadlines of the calls.
//
// Invariants
//  1. A number is open from Begin or AddPart until EndPart or End: until its request is answered or
//     its call ends.
//  2. A call with a deadline is in `deadlines_` from Begin until End.
//
// References that the table drops move to the caller's `trash`: the last one destroys objects of
// the user, which must happen without the lock.
//
// Owned by a connection, used under its lock.
#ifndef PHALANX_CLIENT_CONNECTION_CALL_TABLE_H_
#define PHALANX_CLIENT_CONNECTION_CALL_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "src/common/time/instant.h"

namespace phalanx::internal {

class Call;

// The numbers [first, first + count) belong to one call. The client ends the call at `deadline`.
struct CallRequests {
  uint64_t first = 0;
  uint64_t count = 0;
  Instant deadline = Instant::Infinite();
};

class CallTable {
 public:
  using Trash = std::vector<std::shared_ptr<void>>;

  // Open numbers.
  size_t size() const { return open_.size(); }
  bool IsOpen(uint64_t number) const { return open_.contains(number); }
  // Returns the call of an open number, else null.
  std::shared_ptr<Call> Find(uint64_t number) const;
  // Returns the open numbers, the oldest first.
  std::vector<uint64_t> Numbers() const;

  // Opens the first number of a call, if it has any, and notes the call's deadline.
  void Begin(const std::shared_ptr<Call>& call, const CallRequests& requests);
  // Opens another number of a call.
  void AddPart(uint64_t number, const std::shared_ptr<Call>& call) { open_[number] = call; }
  // Does nothing if the number is not open.
  void EndPart(uint64_t number, Trash& trash);
  // Closes all numbers of a call and removes its deadline. Idempotent.
  void End(const CallRequests& requests, Trash& trash);

  // The earliest deadline; infinite if no call has one.
  Instant next_deadline() const {
    return deadlines_.empty() ? Instant::Infinite() : deadlines_.begin()->first.first;
  }
  // Returns the call with the earliest deadline; null if no call has one.
  std::shared_ptr<Call> WithDeadline() const {
    return deadlines_.empty() ? nullptr : deadlines_.begin()->second;
  }
  // Returns the call with the earliest deadline if this has passed, else null. REQUIRES: `now` is
  // finite.
  std::shared_ptr<Call> Expired(Instant now) const {
    return next_deadline() <= now ? deadlines_.begin()->second : nullptr;
  }

 private:
  absl::flat_hash_map<uint64_t, std::shared_ptr<Call>> open_;
  // By deadline and first number.
  std::map<std::pair<Instant, uint64_t>, std::shared_ptr<Call>> deadlines_;
};

}  // namespace phalanx::internal

#endif  // PHALANX_CLIENT_CONNECTION_CALL_TABLE_H_
