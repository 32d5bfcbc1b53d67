/* Puts two arrays, and gets their sum.
 *
 *   quickstart                                               with a private cluster
 *   PHALANX_ADDRESS=unix:/run/phalanx/node.sock quickstart   with the node of this host
 */
#include <stdio.h>
#include <string.h>

#include "phalanx/c.h"

enum { kIdBytes = 20, kForever = -1 };

static int Failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, phx_error());
  return 1;
}

/* Waits for a call, frees it, and returns its code. */
static int End(phx_call* call) {
  if (call == NULL) return phx_error_code();
  const int code = phx_wait(call, kForever);
  phx_call_free(call);
  return code;
}

int main(void) {
  /* NULL: the defaults. */
  phx_client* client = phx_connect(NULL);
  if (client == NULL) return Failed("connect");

  /* Any 20 bytes name an object. Every process that uses the same name gets the same id. */
  char sources[2][kIdBytes];
  char total[kIdBytes];
  phx_id_from_name("default", 7, "first", 5, sources[0]);
  phx_id_from_name("default", 7, "second", 6, sources[1]);
  phx_id_from_name("default", 7, "total", 5, total);

  /* Called before the sources exist; they can come from any process of any host. */
  phx_reduce_options sum;
  memset(&sum, 0, sizeof(sum));
  sum.dtype = PHX_F32;
  sum.op = PHX_SUM;
  sum.timeout = kForever;
  phx_call* reduced = phx_all_reduce(client, total, sources[0], 2, &sum);

  const float values[2][3] = {{1, 2, 3}, {10, 20, 30}};
  for (int i = 0; i < 2; ++i) {
    if (End(phx_put(client, sources[i], values[i], sizeof(values[i]), NULL)) != 0) {
      return Failed("put");
    }
  }

  phx_view view;
  if (phx_wait(reduced, kForever) != 0 || phx_result_views(reduced, 0, 1, &view) != 0) {
    return Failed("reduce");
  }
  phx_call_free(reduced);
  /* Memory of the library; from 64 KiB on, shared memory, which is not copied. */
  const float* result = (const float*)view.data;
  printf("%g %g %g\n", result[0], result[1], result[2]);
  phx_buffer_free(view.buffer);
  phx_client_free(client);
  return 0;
}
