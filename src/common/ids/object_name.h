// The name of an object: the namespace and the name from which its id was derived.
//
// A name is kept with its object and shown to users. The id alone identifies the object: two
// objects with one id have one name, and an object whose id was not derived has none.
//
// A value with the size of two pointers; copies share the text. Any thread.
#ifndef PHALANX_COMMON_IDS_OBJECT_NAME_H_
#define PHALANX_COMMON_IDS_OBJECT_NAME_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "phalanx/object_id.h"

namespace phalanx {

// The maximum size of a namespace, and of a name, that is kept. Longer ones derive ids as well.
inline constexpr size_t kMaxObjectNameBytes = 255;

// Returns true if the text can be kept with objects and shown: at most kMaxObjectNameBytes of UTF-8
// without control characters.
bool CanBeKept(absl::string_view text);

class ObjectName {
 public:
  // No name.
  ObjectName() = default;
  // Returns no name if the pair cannot be kept: the name is empty, one of them is longer than
  // kMaxObjectNameBytes, is not UTF-8 or has control characters (which would change a terminal).
  static ObjectName Of(absl::string_view name_space, absl::string_view name);

  bool empty() const { return texts_ == nullptr; }
  absl::string_view name_space() const;
  absl::string_view name() const;
  // The bytes of both.
  size_t size() const { return name_space().size() + name().size(); }
  // Returns true if this is a name and `id` was derived from it.
  bool Names(const ObjectId& id) const;
  // Returns "job/7", or "batch:job/7" for a namespace that is not "default"; "" if there is no
  // name.
  std::string ToString() const;

  friend bool operator==(const ObjectName& a, const ObjectName& b) {
    return a.name_space() == b.name_space() && a.name() == b.name();
  }

 private:
  struct Texts {
    std::string name_space;
    std::string name;
  };

  std::shared_ptr<const Texts> texts_;
};

}  // namespace phalanx

#endif  // PHALANX_COMMON_IDS_OBJECT_NAME_H_
