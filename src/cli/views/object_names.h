// The names of objects, as the subcommands print them. Pure; any thread.
#ifndef PHALANX_CLI_VIEWS_OBJECT_NAMES_H_
#define PHALANX_CLI_VIEWS_OBJECT_NAMES_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/string_view.h"
#include "phalanx/v1/types.pb.h"

namespace phalanx::runtime {

// "job/7", or "batch:job/7" for a namespace other than "default"; "" without a name. Has no control
// characters, whatever the shard sends.
std::string NameText(const v1::ObjectName& name);
// "job/7" (5f..e0), with the quotation marks; only the digits without a name.
std::string IdWithName(absl::string_view object_id, const v1::ObjectName& name);
// Sets the keys "name" and "namespace"; null without a name.
void AddNameTo(nlohmann::json& json, const v1::ObjectName& name);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_VIEWS_OBJECT_NAMES_H_
