// The file of a node's pool, written again and again by one client: what may be written when, and
// what it costs.
#include "src/runtime/client/file_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::internal {
namespace {

// Not a multiple of what page tables move by.
constexpr uint64_t kBytes = (9 << 20) + 4096;

int64_t Faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// How a child that does this ends: by a signal, or with an exit status, told as its negative.
int EndOf(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

class FileMappingTest : public ::testing::Test {
 protected:
  FileMappingTest() : fd_(memfd_create("rewritten", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd_, kBytes), 0);
    auto mapping = FileMapping::Map(fd_, kBytes, /*writable=*/true);
    PHALANX_EXPECT_OK(mapping);
    mapping_ = *std::move(mapping);
  }
  ~FileMappingTest() override { close(fd_); }

  void Write(char byte) {
    PHALANX_ASSERT_OK(mapping_->BeginWriting(kBytes));
    std::memset(mapping_->writing(), byte, kBytes);
    PHALANX_ASSERT_OK(mapping_->EndWriting());
  }
  char InFile(uint64_t offset) const {
    char byte = 0;
    EXPECT_EQ(pread(fd_, &byte, 1, static_cast<off_t>(offset)), 1);
    return byte;
  }

  const int fd_;
  std::shared_ptr<FileMapping> mapping_;
};

TEST_F(FileMappingTest, WhatIsWrittenIsInTheFileAndToBeReadInPlace) {
  for (const char byte : {'a', 'b', 'c'}) {
    Write(byte);
    for (const uint64_t offset : {uint64_t{0}, kBytes / 2, kBytes - 1}) {
      EXPECT_EQ(mapping_->data()[offset], byte);
      EXPECT_EQ(mapping_->writing()[offset], byte);
      EXPECT_EQ(InFile(offset), byte);
    }
  }
}

TEST_F(FileMappingTest, AStrayWriteFaultsBeforeAndAfterButNotDuringWriting) {
  const auto write = [this] { mapping_->writing()[kBytes - 1] = 'x'; };
  EXPECT_EQ(EndOf(write), SIGSEGV);
  for (int round = 0; round < 2; ++round) {
    PHALANX_ASSERT_OK(mapping_->BeginWriting(kBytes));
    write();
    PHALANX_ASSERT_OK(mapping_->EndWriting());
    EXPECT_EQ(EndOf(write), SIGSEGV);
  }
}

TEST_F(FileMappingTest, AChildReadsWhatWasSealedAndHasNothingOfWhatIsBeingWritten) {
  Write('a');
  EXPECT_EQ(EndOf([this] { _exit(mapping_->data()[0] == 'a' ? 0 : 1); }), 0);
  PHALANX_ASSERT_OK(mapping_->BeginWriting(kBytes));
  EXPECT_EQ(EndOf([this] { _exit(mapping_->writing()[0]); }), SIGSEGV);
}

TEST_F(FileMappingTest, OnlyTheFirstWriterAndTheFirstReaderWaitForPages) {
  const auto read = [this] {
    for (uint64_t at = 0; at < kBytes; at += 4096) EXPECT_EQ(mapping_->data()[at], InFile(at));
  };
  Write('a');
  read();
  const int64_t before = Faults();
  for (int round = 0; round < 4; ++round) {
    Write('b');
    read();
  }
  EXPECT_LT(Faults() - before, static_cast<int64_t>(kBytes / 4096 / 4));
}

TEST_F(FileMappingTest, LeavesNoMappingBehind) {
  const auto mapped = [] {
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    std::string text, piece(1 << 16, '\0');
    for (ssize_t n; (n = read(fd, piece.data(), piece.size())) > 0;) text.append(piece, 0, n);
    close(fd);
    int lines = 0;
    for (size_t at = 0; (at = text.find("/memfd:rewritten", at)) != std::string::npos; ++at) {
      at = text.find('\n', at);
      ++lines;
    }
    return lines;
  };
  Write('a');
  const int with = mapped();
  mapping_.reset();
  EXPECT_EQ(mapped(), with - 3);
}

}  // namespace
}  // namespace phalanx::internal
