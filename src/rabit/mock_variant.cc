#include <utility>

#include "src/rabit/mock_engine.h"
#include "src/rabit/variant.h"

namespace phalanx::rabit {

bool IsMock() { return true; }

std::unique_ptr<Engine> Wrap(std::unique_ptr<Engine> engine, const Parameters& parameters) {
  return std::make_unique<MockEngine>(std::move(engine), parameters);
}

}  // namespace phalanx::rabit
