/* The functions of rabit.h for C, and for bindings of other languages. Errors end the process with
 * 255, after a line on standard error. */
#ifndef RABIT_C_API_H_
#define RABIT_C_API_H_

#ifdef __cplusplus
#define RABIT_EXTERN_C extern "C"
#include <cstddef>
#else
#define RABIT_EXTERN_C
#include <stdbool.h>
#include <stddef.h>
#endif

#if defined(_MSC_VER) || defined(_WIN32)
#define RABIT_DLL RABIT_EXTERN_C __declspec(dllexport)
#else
#define RABIT_DLL RABIT_EXTERN_C __attribute__((visibility("default")))
#endif

typedef unsigned long rbt_ulong; /* NOLINT */

/* Types: 0 char, 1 unsigned char, 2 int, 3 unsigned int, 4 long, 5 unsigned long, 6 float, 7
 * double, 8 long long, 9 unsigned long long. Operations: 0 max, 1 min, 2 sum, 3 bitwise or. */

RABIT_DLL bool RabitInit(int argc, char* argv[]);
RABIT_DLL bool RabitFinalize(void);
RABIT_DLL int RabitGetRank(void);
RABIT_DLL int RabitGetWorldSize(void);
RABIT_DLL int RabitGetRingPrevRank(void);
/* 0 or 1. */
RABIT_DLL int RabitIsDistributed(void);
RABIT_DLL void RabitTrackerPrint(const char* text);
/* At most max_len bytes, with the zero at the end; out_len is without it. */
RABIT_DLL void RabitGetProcessorName(char* out_name, rbt_ulong* out_len, rbt_ulong max_len);
RABIT_DLL void RabitBroadcast(void* inout, rbt_ulong size, int root);
/* In elements: this rank's are size_slice, from begin on, of total_size. */
RABIT_DLL void RabitAllgather(void* inout, size_t total_size, size_t begin, size_t size_slice,
                              size_t size_prev_slice, int enum_dtype);
/* `prepare` can be NULL. */
RABIT_DLL void RabitAllreduce(void* inout, size_t count, int enum_dtype, int enum_op,
                              void (*prepare_fun)(void* arg), void* prepare_arg);
/* Returns the version. The models are valid until the next RabitLoadCheckPoint of this thread; of
 * version 0 they have no bytes. out_local_model is NULL if there are no local models. */
RABIT_DLL int RabitLoadCheckPoint(char** out_global_model, rbt_ulong* out_global_len,
                                  char** out_local_model, rbt_ulong* out_local_len);
/* local_model is NULL if there are no local models. */
RABIT_DLL void RabitCheckPoint(const char* global_model, rbt_ulong global_len,
                               const char* local_model, rbt_ulong local_len);
RABIT_DLL int RabitVersionNumber(void);
/* Returns 0. A program that calls it links these functions in. */
RABIT_DLL int RabitLinkTag(void);

#endif /* RABIT_C_API_H_ */
