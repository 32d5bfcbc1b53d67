// The generations of an object that are not adopted: each stands by on the node that created it.
//
//   Create, Register ──► stands by ──(the adopted generation dies)──► Adopt
//                           │ └──(the adopted generation is complete)──► SUPERSEDED ──► dropped
//                           └──(its generation is deleted)──► DELETED ──► dropped
//
// A node is sent STANDBY when its generation begins to stand by, and again when another generation
// is adopted. ObjectTable and ObjectRequests mark a standby complete when it is sealed, and
// erase what ends with an announcement, a withdrawal, a node, a session or a Delete.
//
// Invariants (ObjectTable::CheckInvariants)
//  1. A generation that stands by is not the adopted one, and its node has a session.
//  2. A generation is superseded only while a complete copy is on a connected node (not checked).
//
// Owned by ObjectTable. Thread rule: the shard's control loop; no I/O.
#ifndef PHALANX_DIRECTORY_OBJECTS_STANDBYS_H_
#define PHALANX_DIRECTORY_OBJECTS_STANDBYS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "phalanx/v1/directory.pb.h"
#include "src/common/ids/ids.h"
#include "src/directory/core/core_context.h"
#include "src/directory/core/node_table.h"
#include "src/directory/core/outbox.h"
#include "src/directory/core/recovery_gate.h"
#include "src/directory/objects/object.h"
#include "src/directory/objects/object_listeners.h"
#include "src/directory/objects/tombstone_table.h"
#include "src/directory/scopes/scope_table.h"

namespace phalanx::directory {

class ObjectTable;

class Standbys {
 public:
  // What the standbys stand on; all of them outlive them.
  struct Parts {
    CoreContext& context;
    NodeTable& nodes;
    Outbox& outbox;
    const RecoveryGate& gate;
    TombstoneTable& tombstones;
    const ScopeTable& scopes;
    ObjectTable& objects;
    const ObjectListeners& listeners;
  };

  explicit Standbys(const Parts& parts) : parts_(parts) {}

  // The generation stands by on `node`; replaces an earlier announcement of the same generation.
  void Add(Object& object, Node& node, Standby standby);
  // A node registers a generation other than the adopted one: adopts it if it wins, else lets it
  // stand by.
  void Register(Object& object, Node& node, const Registration& r,
                absl::Span<const uint64_t> watermarks);
  // Adopts the best generation that stands by. Returns false if there is none.
  bool AdoptBest(Object& object);
  // The generation that was adopted turns out to be deleted: adopts the best of those that nodes
  // registered as adopted after that Delete.
  void AdoptSpared(Object& object);
  // Nodes that stood by with the generation that is adopted now have copies.
  void Absorb(Object& object);
  // Supersedes every generation if a complete copy of the adopted one is in reach.
  void SupersedeAll(Object& object);
  // Repeats STANDBY after another generation was adopted.
  void Notify(const Object& object);
  // The generations whose scopes have ended are forgotten, and their nodes drop them.
  void DropEnded(Object& object);
  // The generation was deleted: the nodes on which it stands by drop it.
  void Refuse(Object& object, const Generation& generation, Tombstone& tombstone);

 private:
  void Supersede(Object& object, Standby& standby);
  // Returns true if a complete copy is on a connected session. Whether any other copy still exists
  // is known when its session is back or its lease has ended.
  bool HasReachableCopy(const Object& object) const;
  // Returns true if the registered generation replaces the adopted one.
  bool Wins(const Object& object, const Registration& r) const;
  // Gives up the adopted generation for the registered one; the former stands by if its creator
  // still has it.
  void Replace(Object& object, Node& node, const Registration& r,
               absl::Span<const uint64_t> watermarks);

  const Parts parts_;
};

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_OBJECTS_STANDBYS_H_
