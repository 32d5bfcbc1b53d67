#include "src/common/defects.h"

namespace phalanx {

std::atomic<Defect> DefectSwitch::active_{Defect::kNone};

absl::string_view DefectName(Defect defect) {
  switch (defect) {
    case Defect::kNone:
      return "none";
#define PHALANX_DEFECT_CASE_(identifier, name) \
  case Defect::identifier:                     \
    return name;
      PHALANX_DEFECTS(PHALANX_DEFECT_CASE_)
#undef PHALANX_DEFECT_CASE_
  }
  return "unknown";
}

std::optional<Defect> DefectFromName(absl::string_view name) {
  if (name == DefectName(Defect::kNone)) return Defect::kNone;
  for (const Defect defect : AllDefects()) {
    if (DefectName(defect) == name) return defect;
  }
  return std::nullopt;
}

const std::vector<Defect>& AllDefects() {
  // Never destroyed: the destructors of other statics can still call this function.
  static const std::vector<Defect>& all = *new std::vector<Defect>{
#define PHALANX_DEFECT_ITEM_(identifier, name) Defect::identifier,
      PHALANX_DEFECTS(PHALANX_DEFECT_ITEM_)
#undef PHALANX_DEFECT_ITEM_
  };
  return all;
}

}  // namespace phalanx
