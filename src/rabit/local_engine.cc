#include "src/rabit/local_engine.h"

#include <unistd.h>

#include <cstdio>

namespace phalanx::rabit {
namespace {

// The exit code of a process that dies because its arguments say so: -2, as in Rabit.
constexpr int kDeathExitCode = 254;

void Prepare(const Preparation& preparation) {
  if (preparation.prepare != nullptr) preparation.prepare(preparation.argument);
}

}  // namespace

Error LocalEngine::Print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  return "";
}

Error LocalEngine::Allreduce(void*, size_t, int, int, Preparation preparation,
                             const library::Where&) {
  Prepare(preparation);
  return "";
}

Error LocalEngine::AllreduceBy(void*, size_t, size_t, library::Reduce*, Preparation preparation,
                               const library::Where&) {
  Prepare(preparation);
  return "";
}

Error LocalEngine::Broadcast(void*, size_t, int root, const library::Where&) {
  if (root == 0) return "";
  return "Broadcast: root " + std::to_string(root) + " is no rank of a world of 1";
}

Error LocalEngine::Allgather(void*, size_t total, size_t begin, size_t size,
                             const library::Where&) {
  if (begin == 0 && size == total) return "";
  return "Allgather: the part of the only rank is not the whole";
}

// As in Rabit: every load of a single process begins anew.
Error LocalEngine::Load(const library::Loaded&, const library::Loaded&, int* version) {
  version_ = 0;
  *version = 0;
  return "";
}

Error LocalEngine::CheckPoint(const library::Saved&, const library::Saved&) {
  ++version_;
  return "";
}

Error LocalEngine::LazyCheckPoint(const library::Saved&) {
  ++version_;
  return "";
}

void LocalEngine::Die(const std::string&) {
  // What the process has printed is seen, and its destructors do not run.
  std::fflush(nullptr);
  _exit(kDeathExitCode);
}

}  // namespace phalanx::rabit
