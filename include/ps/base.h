// Keys, and the ids of groups. Groups are added up: kServerGroup + kWorkerGroup is all servers and
// workers.
#ifndef PS_BASE_H_
#define PS_BASE_H_

#include <cstdint>
#include <limits>

#include "ps/internal/utils.h"

namespace ps {

#if defined(USE_KEY32) && USE_KEY32
using Key = uint32_t;
#else
using Key = uint64_t;
#endif
static const Key kMaxKey = std::numeric_limits<Key>::max();
static const int kScheduler = 1;
static const int kServerGroup = 2;
static const int kWorkerGroup = 4;

}  // namespace ps

#endif  // PS_BASE_H_
