// What is fixed of a generation beside its bytes. A value; any thread.
#ifndef PHALANX_OBJECT_STORE_OBJECTS_COPY_TRAITS_H_
#define PHALANX_OBJECT_STORE_OBJECTS_COPY_TRAITS_H_

#include <string>

#include "src/common/ids/object_name.h"

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
  int slices = 1;
};

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_OBJECTS_COPY_TRAITS_H_
