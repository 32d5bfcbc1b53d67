// Lets a fuzzer's input name an object by one byte, so that a mutation of the input still names an
// object that other messages name too. Testonly.
#ifndef PHALANX_DIRECTORY_FUZZ_SHORT_IDS_H_
#define PHALANX_DIRECTORY_FUZZ_SHORT_IDS_H_

#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "phalanx/object_id.h"

namespace phalanx::directory {

// The id that this byte names.
inline std::string LongId(char short_id) { return std::string(ObjectId::kSize, short_id); }

// Replaces every id of one byte (object, source or target), at any depth, by its long id.
inline void ExpandIds(google::protobuf::Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) {
      if (!field->is_repeated()) {
        ExpandIds(*reflection.MutableMessage(&message, field));
        continue;
      }
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        ExpandIds(*reflection.MutableRepeatedMessage(&message, field, i));
      }
    } else if (field->name() == "source_ids") {
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        const std::string id = reflection.GetRepeatedString(message, field, i);
        if (id.size() == 1) reflection.SetRepeatedString(&message, field, i, LongId(id[0]));
      }
    } else if (field->name() == "object_ids" || field->name() == "refers_to") {
      // Concatenated ids: a list that is shorter than an id consists of short ones.
      const std::string ids = reflection.GetString(message, field);
      if (ids.size() >= ObjectId::kSize) continue;
      std::string expanded;
      for (const char id : ids) expanded += LongId(id);
      reflection.SetString(&message, field, expanded);
    } else if (field->name() == "object_id" || field->name() == "source_id" ||
               field->name() == "target_id") {
      const std::string id = reflection.GetString(message, field);
      if (id.size() == 1) reflection.SetString(&message, field, LongId(id[0]));
    }
  }
}

}  // namespace phalanx::directory

#endif  // PHALANX_DIRECTORY_FUZZ_SHORT_IDS_H_
