#include "src/cli/views/object_names.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/common/ids/object_name.h"

namespace phalanx::runtime {
namespace {

// A name that cannot be kept was not sent by a shard of this version.
ObjectName Checked(const v1::ObjectName& name) {
  return ObjectName::Of(name.name_space(), name.name());
}

}  // namespace

std::string NameText(const v1::ObjectName& name) { return Checked(name).ToString(); }

std::string IdWithName(absl::string_view object_id, const v1::ObjectName& name) {
  const std::string digits = absl::BytesToHexString(object_id);
  const std::string text = NameText(name);
  return text.empty() ? digits : absl::StrCat("\"", text, "\" (", digits, ")");
}

void AddNameTo(nlohmann::json& json, const v1::ObjectName& name) {
  const ObjectName checked = Checked(name);
  json["name"] = nullptr;
  json["namespace"] = nullptr;
  if (checked.empty()) return;
  json["name"] = std::string(checked.name());
  json["namespace"] = std::string(checked.name_space());
}

}  // namespace phalanx::runtime
