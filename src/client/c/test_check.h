/* CHECK, for tests in C: ends the process with 1 if a condition does not hold, and prints the line,
 * the condition and the last error of this thread. Testonly. */
#ifndef PHALANX_CLIENT_C_TEST_CHECK_H_
#define PHALANX_CLIENT_C_TEST_CHECK_H_

#include <stdio.h>
#include <stdlib.h>

#include "phalanx/c.h"

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "line %d: %s (last error %d: %s)\n", __LINE__, #condition, phx_error_code(), \
              phx_error());                                                                        \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

#endif /* PHALANX_CLIENT_C_TEST_CHECK_H_ */
