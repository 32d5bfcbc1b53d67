// Models: what a checkpoint is made from, and loaded into.
#ifndef RABIT_SERIALIZABLE_H_
#define RABIT_SERIALIZABLE_H_

#include <string>
#include <vector>

#include "dmlc/io.h"
#include "internal/utils.h"

namespace rabit {

// Load(Stream*) and Save(Stream*) const.
typedef dmlc::Stream Stream;
typedef dmlc::Serializable Serializable;

}  // namespace rabit

#endif  // RABIT_SERIALIZABLE_H_
