// Flags that name the type of elements and the op of a reduction. Main's thread only.
#ifndef PHALANX_CLI_OBJECTS_ELEMENT_FLAGS_H_
#define PHALANX_CLI_OBJECTS_ELEMENT_FLAGS_H_

#include <string>

#include "src/cli/flags.h"

namespace phalanx::runtime {

// One of all names; ParseDType and ParseReduceOp accept it.
FlagValue DTypeChoice(std::string* target);
FlagValue ReduceOpChoice(std::string* target);

}  // namespace phalanx::runtime

#endif  // PHALANX_CLI_OBJECTS_ELEMENT_FLAGS_H_
