#ifndef PHALANX_BAZEL_TEST_HEADERS_H_
#define PHALANX_BAZEL_TEST_HEADERS_H_

// Like library_headers.h, for tests.

#include "bazel/library_headers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#endif  // PHALANX_BAZEL_TEST_HEADERS_H_
