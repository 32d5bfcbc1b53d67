#include "src/common/ids/object_name.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "src/common/io/utf8.h"

namespace phalanx {
namespace {

// REQUIRES: UTF-8.
bool HasControlCharacters(absl::string_view text) {
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<uint8_t>(text[at]);
    if (byte < 0x20 || byte == 0x7f) return true;
    // U+0080..U+009F: terminals accept these as control characters, too.
    if (byte == 0xc2 && static_cast<uint8_t>(text[at + 1]) < 0xa0) return true;
  }
  return false;
}

}  // namespace

bool CanBeKept(absl::string_view text) {
  return text.size() <= kMaxObjectNameBytes && IsUtf8(text) && !HasControlCharacters(text);
}

ObjectName ObjectName::Of(absl::string_view name_space, absl::string_view name) {
  ObjectName made;
  if (name.empty() || !CanBeKept(name_space) || !CanBeKept(name)) return made;
  made.texts_ = std::make_shared<const Texts>(Texts{std::string(name_space), std::string(name)});
  return made;
}

absl::string_view ObjectName::name_space() const {
  return empty() ? absl::string_view() : absl::string_view(texts_->name_space);
}

absl::string_view ObjectName::name() const {
  return empty() ? absl::string_view() : absl::string_view(texts_->name);
}

bool ObjectName::Names(const ObjectId& id) const {
  return !empty() && ObjectId::FromName(name_space(), name()) == id;
}

std::string ObjectName::ToString() const {
  if (name_space().empty() || name_space() == "default") return std::string(name());
  return absl::StrCat(name_space(), ":", name());
}

}  // namespace phalanx
