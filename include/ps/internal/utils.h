// Small things that programs use: GetEnv, LL, DISALLOW_COPY_AND_ASSIGN.
#ifndef PS_INTERNAL_UTILS_H_
#define PS_INTERNAL_UTILS_H_

#include <cinttypes>
#include <cstdlib>

#include "dmlc/logging.h"
#include "ps/internal/env.h"

namespace ps {

template <typename V>
inline V GetEnv(const char* key, V otherwise) {
  const char* const value = Environment::Get()->find(key);
  return value == nullptr ? otherwise : V(value);
}

inline int GetEnv(const char* key, int otherwise) {
  const char* const value = Environment::Get()->find(key);
  return value == nullptr ? otherwise : atoi(value);
}

#ifndef DISALLOW_COPY_AND_ASSIGN
#define DISALLOW_COPY_AND_ASSIGN(TypeName) \
  TypeName(const TypeName&);               \
  void operator=(const TypeName&)
#endif

#define LL LOG(ERROR)

}  // namespace ps

#endif  // PS_INTERNAL_UTILS_H_
