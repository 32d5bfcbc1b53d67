// Elements of reductions, as they are known to users too; see there.
#ifndef PHALANX_COMMON_ELEMENTS_H_
#define PHALANX_COMMON_ELEMENTS_H_

#include "phalanx/elements.h"

#endif  // PHALANX_COMMON_ELEMENTS_H_
