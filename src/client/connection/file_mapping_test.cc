// One client writes a file of the node's pool again and again: when the memory is writable, and
// what it costs.
#include "src/client/connection/file_mapping.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "src/common/testing/status_matchers.h"

namespace phalanx::internal {
namespace {

// Not a multiple of the size in which page tables move.
constexpr uint64_t kBytes = (9 << 20) + 4096;

int64_t Faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// Returns how a child that runs `work` ends: the signal's number, or the negated exit status.
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

// From here on mremap(2) with these flags fails in this process, as it does on older kernels or
// when a process has too many mappings.
void RefuseMoves(uint32_t flags) {
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mremap, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[3])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, flags, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {std::size(steps), steps};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) _exit(100);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) _exit(101);
}

constexpr uint32_t kMove = MREMAP_MAYMOVE | MREMAP_FIXED;
constexpr uint32_t kMoveOfShared = kMove | 4;

// Ends the child with this line's number as its status if the condition is false.
#define EXPECT_IN_CHILD(condition) \
  if (!(condition)) _exit(static_cast<int>(__LINE__ % 256))

// Writes and gives away twice, and checks what each reader sees.
void WriteAndGiveAway(FileMapping& mapping) {
  constexpr uint64_t kGiven = kBytes - 3 * 4096 - 7;
  FileMapping::GivenAway before;
  for (const char byte : {'a', 'b', 'c'}) {
    EXPECT_IN_CHILD(mapping.BeginWriting(kBytes).ok());
    std::memset(mapping.writing(), byte, kBytes);
    char* const looked_at = mapping.writing();
    EXPECT_IN_CHILD(mapping.EndWriting().ok());
    const auto given = mapping.GiveAway(kGiven);
    EXPECT_IN_CHILD(given.ok() && given->begin == looked_at && given->bytes == kBytes - 3 * 4096);
    EXPECT_IN_CHILD(looked_at[0] == byte && looked_at[kGiven - 1] == byte);
    looked_at[0] = 'x';
    EXPECT_IN_CHILD(mapping.data()[0] == byte && mapping.data()[kBytes - 1] == byte);
    if (before.begin != nullptr) {
      EXPECT_IN_CHILD(before.begin[0] == 'x' && before.begin[1] == byte - 1);
      munmap(before.begin, before.bytes);
    }
    before = *given;
  }
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

TEST_F(FileMappingTest, WrittenBytesAreInTheFileAndReadableInPlace) {
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

TEST_F(FileMappingTest, AChildSeesSealedMemoryAndNoMemoryBeingWritten) {
  Write('a');
  EXPECT_EQ(EndOf([this] { _exit(mapping_->data()[0] == 'a' ? 0 : 1); }), 0);
  PHALANX_ASSERT_OK(mapping_->BeginWriting(kBytes));
  EXPECT_EQ(EndOf([this] { _exit(mapping_->writing()[0]); }), SIGSEGV);
}

TEST_F(FileMappingTest, GivenAwayMemoryIsPrivate) {
  EXPECT_EQ(EndOf([this] {
              const auto mapping = FileMapping::Map(fd_, kBytes, /*writable=*/true);
              EXPECT_IN_CHILD(mapping.ok());
              WriteAndGiveAway(**mapping);
            }),
            0);
}

TEST_F(FileMappingTest, GivesMemoryAwayWithoutMovablePages) {
  EXPECT_EQ(EndOf([this] {
              RefuseMoves(kMoveOfShared);
              const auto mapping = FileMapping::Map(fd_, kBytes, /*writable=*/true);
              EXPECT_IN_CHILD(mapping.ok());
              WriteAndGiveAway(**mapping);
            }),
            0);
}

TEST_F(FileMappingTest, MemoryIsNotWrittenAgainAfterAFailedGiveAway) {
  EXPECT_EQ(EndOf([this] {
              const auto mapping = FileMapping::Map(fd_, kBytes, /*writable=*/true);
              EXPECT_IN_CHILD(mapping.ok() && (*mapping)->BeginWriting(kBytes).ok());
              std::memset((*mapping)->writing(), 'a', kBytes);
              EXPECT_IN_CHILD((*mapping)->EndWriting().ok());
              RefuseMoves(kMove);
              const auto given = (*mapping)->GiveAway(kBytes);
              EXPECT_IN_CHILD(absl::IsResourceExhausted(given.status()));
              EXPECT_IN_CHILD((*mapping)->writing() == nullptr);
              EXPECT_IN_CHILD(absl::IsResourceExhausted((*mapping)->BeginWriting(kBytes)));
              EXPECT_IN_CHILD(absl::IsResourceExhausted((*mapping)->GiveAway(kBytes).status()));
              EXPECT_IN_CHILD((*mapping)->EndWriting().ok());
              EXPECT_IN_CHILD((*mapping)->data()[kBytes - 1] == 'a');
            }),
            0);
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
