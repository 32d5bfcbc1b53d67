// The release of Phalanx. A test verifies that MODULE.bazel and the Python package name the same
// one.
#ifndef PHALANX_COMMON_RELEASE_H_
#define PHALANX_COMMON_RELEASE_H_

namespace phalanx {

inline constexpr char kRelease[] = "0.1.0";

}  // namespace phalanx

#endif  // PHALANX_COMMON_RELEASE_H_
