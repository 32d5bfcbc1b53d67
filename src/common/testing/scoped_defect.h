// ScopedDefect: switches one named defect on for a scope. Testonly.
#ifndef PHALANX_COMMON_TESTING_SCOPED_DEFECT_H_
#define PHALANX_COMMON_TESTING_SCOPED_DEFECT_H_

#include "src/common/check.h"
#include "src/common/defects.h"

namespace phalanx::testing {

// Process-wide; scopes do not nest. Construct and destroy it only while no code under test runs.
class ScopedDefect {
 public:
  explicit ScopedDefect(Defect defect) {
    const Defect before = DefectSwitch::active_.exchange(defect);
    PHALANX_CHECK(before == Defect::kNone, "one defect at a time");
  }
  ~ScopedDefect() { DefectSwitch::active_.store(Defect::kNone); }
  ScopedDefect(const ScopedDefect&) = delete;
  ScopedDefect& operator=(const ScopedDefect&) = delete;
};

}  // namespace phalanx::testing

#endif  // PHALANX_COMMON_TESTING_SCOPED_DEFECT_H_
