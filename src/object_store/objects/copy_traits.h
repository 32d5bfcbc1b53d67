// What is fixed of a generation beside its bytes. A value; any thread.
#ifndef PHALANX_OBJECT_STORE_OBJECTS_COPY_TRAITS_H_
#define PHALANX_OBJECT_STORE_OBJECTS_COPY_TRAITS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "phalanx/scope.h"
#include "src/common/ids/object_name.h"
#include "src/common/time/instant.h"

namespace phalanx::object_store {

struct CopyTraits {
  std::string metadata;
  // Of the result of a reduction: the ids of its sources, and what was asked for.
  std::string reduced_from;
  std::string asked_for;
  // Ids of the objects that the bytes refer to.
  std::string refers_to;
  // Freed when no node holds it. A Keep ends that, as soon as this node knows of the Keep.
  bool owned = false;
  ObjectName name = {};
  // As it was put; infinite for a copy that was pulled.
  absl::Duration ttl = absl::InfiniteDuration();
  // When the shard deletes the object, as far as this node knows: never early, and late by the way
  // of the message. For a generation with a time to live, known from its adoption on.
  Instant expires = Instant::Infinite();
  int slices = 1;
  // Primary copies on so many hosts, as the creator asked for; 0 on every other node.
  uint32_t copies = 0;
  // Empty if the object is in none.
  Scope scope = {};
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_OBJECTS_COPY_TRAITS_H_
