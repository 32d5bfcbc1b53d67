// Which release of Phalanx this is; MODULE.bazel and the Python package say the same (a test).
#ifndef PHALANX_COMMON_RELEASE_H_
#define PHALANX_COMMON_RELEASE_H_

namespace phalanx {

inline constexpr char kRelease[] = "0.1.0";

}  // namespace phalanx

#endif  // PHALANX_COMMON_RELEASE_H_
