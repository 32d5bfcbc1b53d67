#include "phalanx/scope.h"

#include "absl/strings/str_cat.h"

namespace phalanx {

std::string Scope::ToString() const { return absl::StrCat("scope \"", name, "\" ", number); }

}  // namespace phalanx
