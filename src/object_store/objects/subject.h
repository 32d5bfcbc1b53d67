// What every message to a shard about one generation begins with. Pure functions, any thread.
#ifndef PHALANX_OBJECT_STORE_OBJECTS_SUBJECT_H_
#define PHALANX_OBJECT_STORE_OBJECTS_SUBJECT_H_

#include <string>

#include "phalanx/object_id.h"
#include "src/common/ids/ids.h"
#include "src/directory/core/validate.h"

namespace phalanx::object_store {

inline std::string IdBytes(const ObjectId& id) {
  return std::string(id.binary().data(), id.binary().size());
}

template <typename Message>
void SetSubject(const ObjectId& id, const Generation& generation, Message* out) {
  out->set_object_id(IdBytes(id));
  directory::ToProto(generation, out->mutable_generation());
}

}  // namespace phalanx::object_store

#endif  // PHALANX_OBJECT_STORE_OBJECTS_SUBJECT_H_
