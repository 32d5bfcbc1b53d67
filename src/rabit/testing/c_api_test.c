/* A rank that calls the functions of rabit/c_api.h, as bindings of other languages do: a checkpoint
 * of more than 65,535 bytes is loaded again after a death, and Allgather counts elements.
 *
 * Prints "[RANK] VERSION IS_DISTRIBUTED" at its end. Alone it is a test of the only rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rabit/c_api.h"

#define CHECK(condition)                                      \
  do {                                                        \
    if (!(condition)) {                                       \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
      exit(1);                                                \
    }                                                         \
  } while (0)

enum {
  kModelBytes = 200000,
  kLocalBytes = 70000,
  kIterations = 3,
  kInt = 2,
  kDouble = 7,
  kSum = 2
};

static void Prepare(void* argument) { *(int*)argument = RabitGetRank() + 1; }

static void Gather(void) {
  const size_t world = (size_t)RabitGetWorldSize();
  const size_t rank = (size_t)RabitGetRank();
  double* const all = calloc(world * 2, sizeof(double));
  all[rank * 2] = (double)rank;
  all[rank * 2 + 1] = (double)rank + 0.5;
  RabitAllgather(all, world * 2, rank * 2, 2, 2, kDouble);
  for (size_t r = 0; r < world; ++r) {
    CHECK(all[r * 2] == (double)r && all[r * 2 + 1] == (double)r + 0.5);
  }
  free(all);
}

int main(int argc, char** argv) {
  static char model[kModelBytes];
  static char local[kLocalBytes];
  CHECK(RabitInit(argc, argv));
  CHECK(RabitLinkTag() == 0);
  char host[256];
  rbt_ulong length = 0;
  RabitGetProcessorName(host, &length, sizeof(host));
  CHECK(length == strlen(host) && length > 0);
  CHECK(RabitGetRingPrevRank() == (RabitGetRank() + RabitGetWorldSize() - 1) % RabitGetWorldSize());

  char* loaded = NULL;
  char* loaded_local = NULL;
  rbt_ulong size = 0;
  rbt_ulong local_size = 0;
  int version = RabitLoadCheckPoint(&loaded, &size, &loaded_local, &local_size);
  CHECK(version == RabitVersionNumber());
  CHECK(size == (version == 0 ? 0 : kModelBytes));
  CHECK(local_size == (version == 0 ? 0 : kLocalBytes));
  for (rbt_ulong i = 0; i < size; ++i) CHECK(loaded[i] == (char)(version + (int)i % 100));
  for (rbt_ulong i = 0; i < local_size; ++i) CHECK(loaded_local[i] == (char)RabitGetRank());

  int sum = 0;
  const int world = RabitGetWorldSize();
  while (version < kIterations) {
    RabitAllreduce(&sum, 1, kInt, kSum, Prepare, &sum);
    CHECK(sum == world * (world + 1) / 2);
    int root = RabitGetRank();
    RabitBroadcast(&root, sizeof(root), world - 1);
    CHECK(root == world - 1);
    Gather();
    ++version;
    for (int i = 0; i < kModelBytes; ++i) model[i] = (char)(version + i % 100);
    memset(local, RabitGetRank(), sizeof(local));
    RabitCheckPoint(model, kModelBytes, local, kLocalBytes);
  }
  printf("[%d] %d %d\n", RabitGetRank(), RabitVersionNumber(), RabitIsDistributed());
  RabitTrackerPrint("printed\n");
  CHECK(RabitFinalize());
  return 0;
}
