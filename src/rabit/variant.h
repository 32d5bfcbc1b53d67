// What librabit_mock does and librabit does not. Each of the libraries has its own source for it.
#ifndef PHALANX_RABIT_VARIANT_H_
#define PHALANX_RABIT_VARIANT_H_

#include <memory>

#include "src/rabit/engine.h"
#include "src/rabit/parameters.h"

namespace phalanx::rabit {

// Whether this is librabit_mock.
bool IsMock();
// Returns the engine that the program uses: `engine`, or one in front of it.
std::unique_ptr<Engine> Wrap(std::unique_ptr<Engine> engine, const Parameters& parameters);

}  // namespace phalanx::rabit

#endif  // PHALANX_RABIT_VARIANT_H_
