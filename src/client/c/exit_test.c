/* Errors of calls in a function of atexit: the text is there, and belongs to this thread. */
#include <stdlib.h>
#include <string.h>

#include "phalanx/c.h"
#include "src/client/c/test_check.h"

static const char kFirst[] = "unix:/nobody/is/at/this/place.sock";
static const char kSecond[] = "unix:/nobody/is/at/this/place/either/when/the/process/ends.sock";

static void Fail(const char* address) {
  phx_connect_options options;
  memset(&options, 0, sizeof(options));
  options.address = address;
  CHECK(phx_connect(&options) == NULL && phx_error_code() == 14);
  CHECK(strstr(phx_error(), address + strlen("unix:")) != NULL);
}

static void AtExit(void) {
  CHECK(strstr(phx_error(), kFirst + strlen("unix:")) != NULL);
  Fail(kSecond);
}

int main(void) {
  CHECK(atexit(AtExit) == 0);
  Fail(kFirst);
  return 0;
}
