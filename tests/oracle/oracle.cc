// Prints a digest of all messages that the pure cores send in thousands of worlds, so that a change
// that only moves or renames can be proved to change nothing: the output before and after must be
// the same. See docs/simulation.md.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "google/protobuf/stubs/logging.h"
#include "src/common/defects.h"
#include "src/common/io/log.h"
#include "src/common/testing/scoped_defect.h"
#include "tests/oracle/sources.h"

namespace phalanx::oracle {
namespace {

constexpr size_t kBlock = 100;

struct Flags {
  uint64_t first = 1;
  uint64_t seeds = 10'000;
  int jobs = 2;
  bool blocks = false;
  bool each = false;
  bool without_texts = false;
  bool verbose = false;
  std::string source;
  std::string defect = "none";
};

void PrintParts(const SourceDigest& digest, size_t step) {
  for (size_t i = 0; i < digest.cases.size(); i += step) {
    const size_t end = std::min(i + step, digest.cases.size());
    std::printf("  %s %lu..%lu %s\n", digest.name.c_str(), digest.first + i, digest.first + end - 1,
                ToString(digest.Of(i, end)).c_str());
  }
}

int Run(const Flags& flags) {
  const std::optional<Defect> defect = DefectFromName(flags.defect);
  if (!defect) {
    std::fprintf(stderr, "no defect \"%s\"\n", flags.defect.c_str());
    return 2;
  }
  std::optional<testing::ScopedDefect> scoped;
  if (*defect != Defect::kNone) scoped.emplace(*defect);
  SetLogLevel(LogLevel::kOff);
  // Some inputs of the corpora hold strings that are not UTF-8: Protobuf would log each of them.
  google::protobuf::SetLogHandler(nullptr);

  const Transcript::Options options{.texts = !flags.without_texts, .print = flags.verbose};
  std::string all;
  for (const Source& source : AllSources(flags.first, flags.seeds)) {
    if (!flags.source.empty() && flags.source != source.name) continue;
    const SourceDigest digest = RunSource(source, flags.verbose ? 1 : flags.jobs, options);
    const std::string whole = ToString(digest.Whole());
    std::printf("%-20s cases %6lu  messages %9lu  %s\n", source.name.c_str(), source.cases,
                digest.messages, whole.c_str());
    if (flags.blocks) PrintParts(digest, kBlock);
    if (flags.each) PrintParts(digest, 1);
    std::fflush(stdout);
    all += source.name + whole;
  }
  if (all.empty()) {
    std::fprintf(stderr, "no source \"%s\"\n", flags.source.c_str());
    return 2;
  }
  std::printf("%-20s %s\n", "all", ToString(DigestOf(all)).c_str());
  return 0;
}

}  // namespace
}  // namespace phalanx::oracle

int main(int argc, char** argv) {
  phalanx::oracle::Flags flags;
  uint64_t seed = 0;
  CLI::App app("Digests of the messages of the pure cores");
  app.add_option("--first", flags.first, "the first seed");
  app.add_option("--seeds", flags.seeds, "how many");
  const CLI::Option* one = app.add_option("--seed", seed, "this one alone");
  app.add_option("--jobs", flags.jobs, "threads that run them");
  app.add_option("--source", flags.source, "this source alone");
  app.add_option("--defect", flags.defect, "a seeded defect to switch on");
  app.add_flag("--blocks", flags.blocks, "print a digest of each 100 cases");
  app.add_flag("--each", flags.each, "print a digest of each case");
  app.add_flag("--without-texts", flags.without_texts, "leave out texts for people");
  app.add_flag("--verbose", flags.verbose, "print every message");
  CLI11_PARSE(app, argc, argv);
  if (one->count() > 0) {
    flags.first = seed;
    flags.seeds = 1;
  }
  return phalanx::oracle::Run(flags);
}
