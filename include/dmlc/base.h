// What programs for Rabit use of dmlc/base.h. If the program has dmlc-core in a later folder of its
// include path, that file is used instead.
#ifndef DMLC_BASE_H_
#if defined(__GNUC__)
#pragma GCC system_header
#endif
#if defined(__has_include_next)
#if __has_include_next(<dmlc/base.h>)
#define RABIT_DMLC_BASE_FOLLOWS
#endif
#endif
#ifdef RABIT_DMLC_BASE_FOLLOWS
#undef RABIT_DMLC_BASE_FOLLOWS
#include_next <dmlc/base.h>
#else
#define DMLC_BASE_H_

#include <cstddef>
#include <string>
#include <vector>

namespace dmlc {

// Pointers to the first element, NULL if there is none.
template <typename T>
inline T* BeginPtr(std::vector<T>& from) {  // NOLINT
  return from.empty() ? NULL : &from[0];
}
template <typename T>
inline const T* BeginPtr(const std::vector<T>& from) {
  return from.empty() ? NULL : &from[0];
}
inline char* BeginPtr(std::string& from) {  // NOLINT
  return from.empty() ? NULL : &from[0];
}
inline const char* BeginPtr(const std::string& from) { return from.empty() ? NULL : &from[0]; }

}  // namespace dmlc

#endif
#endif  // DMLC_BASE_H_
