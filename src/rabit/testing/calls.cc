// Small programs of Rabit, by name: calls NAME [NAME=VALUE ...].
//
// Each prints a line per rank, "[RANK] ...", of what it has got.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "rabit/internal/utils.h"
#include "rabit/rabit.h"

namespace {

// ---- what each rank of a world of n has after the guide's programs

void Print(const std::string& what, const std::vector<int>& values) {
  std::string line = "[" + std::to_string(rabit::GetRank()) + "] " + what;
  for (const int each : values) line += " " + std::to_string(each);
  // In one piece: ranks can be threads.
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

std::vector<int> Counting() {
  std::vector<int> values;
  for (int i = 0; i < 3; ++i) values.push_back(rabit::GetRank() + i);
  return values;
}

void Basic() {
  std::vector<int> values = Counting();
  rabit::Allreduce<rabit::op::Max>(values.data(), values.size());
  Print("max", values);
  rabit::Allreduce<rabit::op::Sum>(values.data(), values.size());
  Print("sum", values);
  values = Counting();
  rabit::Allreduce<rabit::op::Min>(values.data(), values.size());
  Print("min", values);
  values = {1 << rabit::GetRank()};
  rabit::Allreduce<rabit::op::BitOR>(values.data(), values.size());
  Print("or", values);
}

void Broadcast() {
  std::string text = rabit::GetRank() == 0 ? "hello world" : "";
  rabit::Broadcast(&text, 0);
  std::vector<int> values(static_cast<size_t>(rabit::GetRank()), 7);
  rabit::Broadcast(&values, rabit::GetWorldSize() - 1);
  std::vector<double> none;
  rabit::Broadcast(&none, 0);
  Print(text, values);
}

void LazyAllreduce() {
  std::vector<int> values(3);
  rabit::Allreduce<rabit::op::Max>(values.data(), values.size(), [&] {
    Print("run prepare", {});
    const std::vector<int> own = Counting();
    std::copy(own.begin(), own.end(), values.begin());
  });
  rabit::Allreduce<rabit::op::Sum>(values.data(), values.size());
  Print("sum", values);
}

// ---- functions of the program

struct Longest {
  int length;
  char rank;  // leaves a gap

  static void Reduce(Longest& into, const Longest& from) {
    if (from.length > into.length) into = from;
  }
};

// Keeps the order of what it has.
struct Words {
  std::string text;

  void Save(rabit::Stream& to) const { to.Write(text); }
  void Load(rabit::Stream& from) { from.Read(&text); }
  void Reduce(const Words& from, size_t) { text += from.text; }
};

void Reducers() {
  rabit::Reducer<Longest, Longest::Reduce> longest;
  std::vector<Longest> of(2);
  longest.Allreduce(of.data(), of.size(), [&] {
    for (Longest& each : of) each = {rabit::GetRank() * 5 % 7, static_cast<char>(rabit::GetRank())};
  });
  rabit::SerializeReducer<Words> joins;
  std::vector<Words> words(2);
  joins.Allreduce(words.data(), 100, words.size(), [&] {
    words[0].text = std::to_string(rabit::GetRank());
    words[1].text = "x";
  });
  Print(words[0].text + " " + words[1].text, {of[0].length, of[1].rank});
}

// ---- the tracker

void Tracker() { rabit::TrackerPrintf("rank %d of %d", rabit::GetRank(), rabit::GetWorldSize()); }

// ---- calls before LoadCheckPoint

struct Count : public rabit::Serializable {
  int value = 0;
  void Load(rabit::Stream* from) override { from->Read(&value); }
  void Save(rabit::Stream* to) const override { to->Write(value); }
};

int SumBefore() {
  int value = 1;
  rabit::Allreduce<rabit::op::Sum>(&value, 1);
  return value;
}

int MaxBefore() {
  int value = rabit::GetRank();
  rabit::Allreduce<rabit::op::Max>(&value, 1);
  return value;
}

// A life that was started again makes its calls before LoadCheckPoint in another order.
void Boot(bool turned) {
  int sum = 0;
  int max = 0;
  if (turned) max = MaxBefore();
  sum = SumBefore();
  if (!turned) max = MaxBefore();
  Count count;
  int version = rabit::LoadCheckPoint(&count);
  for (; version < 3; ++version) {
    count.value += SumBefore();
    rabit::CheckPoint(&count);
  }
  Print("boot", {sum, max, count.value});
}

// ---- ranks that are threads: each has an engine of its own

void Threads() {
  constexpr int kWorld = 3;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kWorld; ++rank) {
    ranks.emplace_back([rank] {
      std::string task = "rabit_task_id=" + std::to_string(rank);
      std::string world = "rabit_world_size=" + std::to_string(kWorld);
      char* arguments[] = {&task[0], &world[0]};
      rabit::Init(2, arguments);
      Basic();
      rabit::Finalize();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  rabit::utils::Check(rabit::GetWorldSize() == 1, "the main thread has ranks");
}

// ---- calls at the end of the process

struct AtEnd {
  bool ranks = false;
  ~AtEnd() {
    if (!ranks) return;
    int value = rabit::GetRank();
    rabit::Allreduce<rabit::op::Sum>(&value, 1);
    Print("static", {value});
    rabit::Finalize();
  }
};
AtEnd at_end;

void AtExit() {
  at_end.ranks = true;
  std::atexit(Basic);
}

// ---- errors

void Refused(const std::string& name) {
  float number = 1;
  Count count;
  if (name == "bitor") rabit::Allreduce<rabit::op::BitOR>(&number, 1);
  if (name == "root") rabit::Broadcast(&number, sizeof(number), 77);
  if (name == "load") {
    rabit::LoadCheckPoint(&count);
    rabit::LoadCheckPoint(&count);
  }
  if (name == "mixed") {
    rabit::LoadCheckPoint(&count);
    rabit::CheckPoint(&count, &count);
  }
  if (name == "sizes") {
    std::vector<int> values(static_cast<size_t>(rabit::GetRank()) + 1);
    rabit::Allreduce<rabit::op::Sum>(values.data(), values.size());
  }
  if (name == "gather") {
    std::vector<int> values(static_cast<size_t>(rabit::GetWorldSize()) + 1);
    rabit::Allgather(values.data(), values.size(), static_cast<size_t>(rabit::GetRank()), 1, 1);
  }
  if (name == "nested") {
    rabit::Allreduce<rabit::op::Sum>(&number, 1, [&] { rabit::Broadcast(&number, 4, 0); });
  }
  if (name == "throws") {
    try {
      rabit::Allreduce<rabit::op::Sum>(&number, 1, [] { throw std::runtime_error("no input"); });
    } catch (const std::runtime_error& error) {
      // The call was not made.
      rabit::Allreduce<rabit::op::Sum>(&number, 1);
      Print(error.what(), {static_cast<int>(number)});
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  if (name == "threads") {
    Threads();
    return 0;
  }
  rabit::Init(argc, argv);
  // Does nothing.
  rabit::Init(argc, argv);
  const char* const attempt = std::getenv("DMLC_NUM_ATTEMPT");
  const bool again = attempt != nullptr && std::atoi(attempt) > 0;
  const std::map<std::string, void (*)()> programs = {
      {"basic", Basic},       {"broadcast", Broadcast}, {"lazy_allreduce", LazyAllreduce},
      {"reducers", Reducers}, {"tracker", Tracker},     {"at_exit", AtExit}};
  const auto program = programs.find(name);
  if (program != programs.end()) {
    program->second();
  } else if (name == "boot") {
    Boot(false);
  } else if (name == "boot_turned") {
    Boot(again);
  } else {
    Refused(name);
  }
  if (name != "at_exit") rabit::Finalize();
  return 0;
}
