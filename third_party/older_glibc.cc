// The C++ library's archive asks for arc4random(3), which came with glibc 2.36. What is linked
// against that archive for machines with an older one (--config=wheel) brings its own.
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

extern "C" __attribute__((visibility("hidden"))) uint32_t arc4random() {
  uint32_t value = 0;
  // No signal interrupts so few bytes.
  if (getrandom(&value, sizeof(value), 0) != sizeof(value)) std::abort();
  return value;
}
