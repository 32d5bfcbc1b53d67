// Logistic regression: each worker pushes the gradient of a part of the examples, and the servers
// take the steps.
//
//   phalanx launch --servers 2 --workers 4 --restarts 20 -- logistic [FLAGS] [FILE]
//
//   --sync=bsp|ssp|asp   the consistency of the table; bsp unless given
//   --clocks=N           how many each worker makes; 200 unless given
//   --serial=WORKERS     the same as BSP with so many workers, in this process
//
// FILE is what logistic.py --export has written: scikit-learn's breast_cancer or digits. Without it
// the program makes examples of three classes. With BSP the last line has the same bits in each
// run, also when servers and workers die, and with --serial.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "phalanx/client.h"
#include "phalanx/ps.h"

namespace {

namespace ps = phalanx::ps;

constexpr double kPenalty = 1e-3;
constexpr double kRate = 0.5;

struct Flags {
  std::string sync = "bsp";
  int clocks = 200;
  int serial = 0;
  std::string file;
};

// The first `known` examples are for the training, the others are held out.
struct Examples {
  size_t count() const { return answers.size(); }
  const double* at(size_t example) const { return &features[example * width]; }

  size_t known = 0;
  size_t width = 0;  // features of an example, the constant 1 with them
  size_t classes = 0;
  std::vector<size_t> answers;
  std::vector<double> features;
};

uint64_t Mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Points around three corners, which lie in each other's way.
Examples Made() {
  constexpr size_t kCount = 600;
  Examples made{.known = kCount * 4 / 5, .width = 5, .classes = 3, .answers = {}, .features = {}};
  uint64_t drawn = 0;
  const auto next = [&drawn] { return static_cast<double>(Mixed(++drawn << 32) >> 11) * 0x1p-53; };
  for (size_t i = 0; i < kCount; ++i) {
    made.answers.push_back(i % made.classes);
    for (size_t feature = 0; feature + 1 < made.width; ++feature) {
      const double corner = feature == made.answers.back() ? 1 : 0;
      made.features.push_back(corner + 2 * (next() - 0.5));
    }
    made.features.push_back(1);
  }
  return made;
}

absl::StatusOr<Examples> Read(const std::string& path) {
  std::ifstream file(path);
  Examples read;
  size_t others = 0;
  file >> read.known >> others >> read.width >> read.classes;
  const auto wrong = [&](size_t example) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": example ", example, " is not what logistic.py --export writes, or missing"));
  };
  if (!file || read.width == 0 || read.known == 0) return wrong(0);
  for (size_t example = 0; example < read.known + others; ++example) {
    size_t answer = 0;
    if (!(file >> answer) || answer >= read.classes) return wrong(example);
    read.answers.push_back(answer);
    for (size_t feature = 0; feature < read.width; ++feature) {
      // In hexadecimal, which streams do not read.
      std::string word;
      if (!(file >> word)) return wrong(example);
      read.features.push_back(std::strtod(word.c_str(), nullptr));
    }
  }
  return read;
}

// The logarithm of each class's probability. `weights` has a row of all classes for each feature.
std::vector<double> Logarithms(const Examples& examples, size_t example,
                               absl::Span<const double> weights) {
  std::vector<double> scores(examples.classes);
  for (size_t feature = 0; feature < examples.width; ++feature) {
    for (size_t c = 0; c < examples.classes; ++c) {
      scores[c] += examples.at(example)[feature] * weights[feature * examples.classes + c];
    }
  }
  const double most = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - most);
  for (double& score : scores) score -= most + std::log(sum);
  return scores;
}

// A worker's part of the gradient. In each clock the examples are dealt out again, so that a worker
// that is ahead, or behind, does not know its own part alone.
std::vector<double> Gradient(const Examples& examples, absl::Span<const double> weights, int rank,
                             int workers, uint64_t clock) {
  std::vector<double> gradient(weights.size());
  const auto count = static_cast<double>(examples.known);
  for (size_t example = 0; example < examples.known; ++example) {
    const uint64_t dealt = Mixed((clock << 32) + example + 1);
    if (static_cast<int>(dealt % static_cast<uint64_t>(workers)) != rank) continue;
    const std::vector<double> logs = Logarithms(examples, example, weights);
    for (size_t i = 0; i < gradient.size(); ++i) {
      const size_t feature = i / examples.classes;
      const size_t c = i % examples.classes;
      const double error = std::exp(logs[c]) - (c == examples.answers[example] ? 1 : 0);
      // Not for the constant, which is the last feature.
      const double penalty = feature + 1 < examples.width ? kPenalty * weights[i] : 0;
      gradient[i] += (error * examples.at(example)[feature] + penalty) / count;
    }
  }
  return gradient;
}

void Report(const std::string& sync, const Examples& examples, absl::Span<const double> weights) {
  double loss = 0;
  size_t right = 0;
  for (size_t example = 0; example < examples.count(); ++example) {
    const std::vector<double> logs = Logarithms(examples, example, weights);
    if (example < examples.known) {
      loss -= logs[examples.answers[example]] / static_cast<double>(examples.known);
    } else if (std::max_element(logs.begin(), logs.end()) - logs.begin() ==
               static_cast<ptrdiff_t>(examples.answers[example])) {
      ++right;
    }
  }
  for (size_t i = 0; i + examples.classes < weights.size(); ++i) {
    loss += kPenalty / 2 * weights[i] * weights[i];
  }
  uint64_t hash = 0;
  for (const double weight : weights) {
    uint64_t bits;
    std::memcpy(&bits, &weight, sizeof(bits));
    hash = Mixed(hash ^ bits) + 1;
  }
  const size_t others = std::max<size_t>(1, examples.count() - examples.known);
  std::cout << sync << std::fixed << ": accuracy " << std::setprecision(4)
            << static_cast<double>(right) / static_cast<double>(others) << ", loss "
            << std::setprecision(6) << loss << ", table " << std::hex << std::setw(16)
            << std::setfill('0') << hash << std::endl;
}

// What the workers and servers do under BSP, without them: the pushes of a clock are added up in
// the order of workers, and then there is one step.
void Replay(const Flags& flags, const Examples& examples) {
  std::vector<double> weights(examples.width * examples.classes);
  for (int clock = 0; clock < flags.clocks; ++clock) {
    std::vector<double> sums(weights.size());
    for (int rank = 0; rank < flags.serial; ++rank) {
      const std::vector<double> gradient =
          Gradient(examples, weights, rank, flags.serial, static_cast<uint64_t>(clock));
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += gradient[i];
    }
    for (size_t i = 0; i < sums.size(); ++i) weights[i] -= kRate * sums[i];
  }
  Report("bsp", examples, weights);
}

absl::Status Serve(phalanx::Client& client, const Flags& flags, const Examples& examples) {
  absl::StatusOr<ps::Server> server = ps::Server::Join(client);
  if (!server.ok()) return server.status();
  const bool ssp = flags.sync == "ssp";
  const ps::Sync sync = ssp                   ? ps::Sync::kSsp
                        : flags.sync == "asp" ? ps::Sync::kAsp
                                              : ps::Sync::kBsp;
  const absl::Status added = server->AddTable({.name = "weights",
                                               .keys = examples.width,
                                               .width = static_cast<uint32_t>(examples.classes),
                                               .dtype = phalanx::DType::kF64,
                                               .wire = phalanx::DType::kF64,
                                               .sync = sync,
                                               .staleness = ssp ? 3u : 0u,
                                               .update = ps::Update::kSgd,
                                               .rate = kRate});
  if (!added.ok()) return added;
  return server->Run();
}

absl::Status Work(phalanx::Client& client, const Flags& flags, const Examples& examples) {
  absl::StatusOr<ps::Worker> worker = ps::Worker::Join(client);
  if (!worker.ok()) return worker.status();
  absl::StatusOr<ps::Table<double>> table = worker->Open<double>("weights");
  if (!table.ok()) return table.status();
  std::vector<double> weights(examples.width * examples.classes);
  // A next life begins at the clock that the servers know, and makes the same pushes.
  while (table->clock() < static_cast<uint64_t>(flags.clocks)) {
    const uint64_t clock = table->clock();
    absl::Status status = table->PullDense(absl::MakeSpan(weights)).Wait().status();
    if (!status.ok()) return status;
    status = table->PushDense(Gradient(examples, weights, worker->rank(), worker->workers(), clock))
                 .Wait()
                 .status();
    if (status.ok()) status = table->Clock();
    if (!status.ok()) return status;
  }
  // Behind it all pushes have come: with SSP and ASP a pull does not wait for them.
  absl::Status status = worker->Barrier();
  if (status.ok() && worker->rank() == 0) {
    status = table->PullDense(absl::MakeSpan(weights)).Wait().status();
    if (status.ok()) Report(flags.sync, examples, weights);
  }
  return status.ok() ? worker->Leave() : status;
}

absl::StatusOr<Flags> Parse(const std::vector<std::string>& words) {
  Flags flags;
  for (const std::string& word : words) {
    absl::string_view value = word;
    bool good = true;
    if (absl::ConsumePrefix(&value, "--sync=")) {
      flags.sync = std::string(value);
      good = value == "bsp" || value == "ssp" || value == "asp";
    } else if (absl::ConsumePrefix(&value, "--clocks=")) {
      good = absl::SimpleAtoi(value, &flags.clocks);
    } else if (absl::ConsumePrefix(&value, "--serial=")) {
      good = absl::SimpleAtoi(value, &flags.serial) && flags.serial > 0;
    } else {
      good = flags.file.empty() && word.rfind("--", 0) != 0;
      flags.file = word;
    }
    if (!good) return absl::InvalidArgumentError(absl::StrCat(word, ": see logistic.cc"));
  }
  return flags;
}

absl::Status Run(const std::vector<std::string>& words) {
  const absl::StatusOr<Flags> flags = Parse(words);
  if (!flags.ok()) return flags.status();
  absl::StatusOr<Examples> examples = Made();
  if (!flags->file.empty()) examples = Read(flags->file);
  if (!examples.ok()) return examples.status();
  if (flags->serial > 0) {
    Replay(*flags, *examples);
    return absl::OkStatus();
  }
  const auto client = phalanx::Client::Connect();
  if (!client.ok()) return client.status();
  const char* const role = std::getenv("PHALANX_ROLE");
  const bool serves = role != nullptr && std::string(role) == "server";
  return serves ? Serve(**client, *flags, *examples) : Work(**client, *flags, *examples);
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = Run(std::vector<std::string>(argv + 1, argv + argc));
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
