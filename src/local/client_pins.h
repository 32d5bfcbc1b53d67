// The pins of one client: views in the client's hands, or in answers that wait to be sent.
//
// A client that leaves names the pins that it keeps, in one or more messages. After the last one
// the caller releases the others.
//
// Owned by a LocalSession, which releases pins at the store; loop thread only.
#ifndef PHALANX_LOCAL_CLIENT_PINS_H_
#define PHALANX_LOCAL_CLIENT_PINS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "src/object_store/store/store.h"

namespace phalanx::object_store {

class ClientPins {
 public:
  bool empty() const { return held_.empty(); }
  bool Contains(PinId pin) const { return held_.contains(pin); }
  void Add(PinId pin) { held_.insert(pin); }
  void Remove(PinId pin) { held_.erase(pin); }

  // The client keeps these when it leaves. Pins that it does not hold are ignored.
  void KeepAtLeave(absl::Span<const uint64_t> pins) { kept_.insert(pins.begin(), pins.end()); }
  // Returns the pins that a client does not keep, ascending. They stay held until Remove.
  std::vector<PinId> TakeNotKept() {
    std::vector<PinId> dropped;
    for (const PinId pin : held_) {
      if (!kept_.contains(pin)) dropped.push_back(pin);
    }
    // The set's order differs from run to run.
    std::sort(dropped.begin(), dropped.end());
    kept_.clear();
    return dropped;
  }

 private:
  absl::flat_hash_set<PinId> held_;
  absl::flat_hash_set<PinId> kept_;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_LOCAL_CLIENT_PINS_H_
