// Starts and stops, as test_connection of ps-lite.
#include "ps/ps.h"

int main() {
  ps::Start(0);
  ps::Finalize(0, true);
  return 0;
}
