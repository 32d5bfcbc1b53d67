// A program for Rabit as it was until 2019: functions of C for `prepare`, no results of Init and
// Finalize. Prints "ok".
#include <rabit/rabit.h>

#include <cstdio>

using namespace rabit;  // NOLINT

struct Model : public Serializable {
  std::vector<float> weights;
  std::vector<std::string> names;
  int round;

  virtual void Load(Stream* from) {
    utils::Check(from->Read(&weights) && from->Read(&names) && from->Read(&round), "ends early");
  }
  virtual void Save(Stream* to) const {
    to->Write(weights);
    to->Write(names);
    to->Write(round);
  }
};

struct Pair {
  double sum;
  int count;
};

inline void Merge(Pair& into, const Pair& from) {  // NOLINT
  into.sum += from.sum;
  into.count += from.count;
}

// Of any size.
struct Summary {
  std::vector<int> values;

  void Save(Stream& to) const { to.Write(values); }  // NOLINT
  void Load(Stream& from) { from.Read(&values); }    // NOLINT
  void Reduce(const Summary& from, size_t max_nbyte) {
    utils::Check(max_nbyte == 64, "another size");
    values.insert(values.end(), from.values.begin(), from.values.end());
  }
};

static void Fill(void* argument) { static_cast<float*>(argument)[0] = 3; }

// A function as engine::Allreduce_ and ReduceHandle have it.
static void AddBytes(const void* from, void* into, int count, const MPI::Datatype& type) {
  utils::Assert(engine::ReduceHandle::TypeSize(type) == 1, "another type");
  for (int i = 0; i < count; ++i) {
    static_cast<char*>(into)[i] += static_cast<const char*>(from)[i];
  }
}

static void CheckStreams() {
  Model model;
  model.weights.assign(3, 0.5f);
  model.names.push_back("first");
  model.round = 7;
  std::string bytes;
  utils::MemoryBufferStream out(&bytes);
  Stream* const to = &out;
  model.Save(to);
  Model copy;
  utils::MemoryFixSizeBuffer in(BeginPtr(bytes), bytes.length());
  copy.Load(&in);
  utils::Check(copy.weights == model.weights && copy.names == model.names && copy.round == 7 &&
                   in.Tell() == bytes.length() && in.AtEnd(),
               "another model");
  in.Seek(0);
  out.Seek(0);
  size_t length = 0;
  utils::Check(in.Read(&length) && length == 3, "another length");
}

template <typename OP>
static int Reduced(int into, int from) {
  OP::Reduce(into, from);
  return into;
}

static void CheckReducers() {
  utils::Check(Reduced<op::Max>(5, 6) == 6 && Reduced<op::Min>(5, 6) == 5 &&
                   Reduced<op::Sum>(5, 6) == 11 && Reduced<op::BitOR>(5, 6) == 7,
               "another element");
#ifndef DMLC_USE_CXX11
  utils::Error("functions with a std::function are not announced");
#endif
}

int main(int argc, char* argv[]) {
  utils::SPrintf(argv[0], 1, "%s", "");
  rabit::Init(argc, argv);
  CheckStreams();
  Model model;
  if (rabit::LoadCheckPoint(&model) == 0) model.weights.assign(4, 1.0f);
  float value[2] = {0, 1};
  Allreduce<op::Max>(value, 2, Fill, value);
  utils::Check(value[0] == 3, "prepare was not called");
  unsigned long bits = 5;  // NOLINT
  Allreduce<op::BitOR>(&bits, 1);
  char letter = 'a';
  Allreduce<op::Min>(&letter, 1);

  Reducer<Pair, Merge> pairs;
  Pair pair = {1.5, 1};
  pairs.Allreduce(&pair, 1);
  SerializeReducer<Summary> summaries;
  Summary summary;
  summary.values.push_back(9);
  summaries.Allreduce(&summary, 64, 1);
  utils::Check(summary.values.size() == 1 && summary.values[0] == 9, "another summary");
  engine::ReduceHandle handle;
  // The size of Init does not count.
  handle.Init(AddBytes, 64);
  handle.Allreduce(&letter, 1, 1);
  engine::Allreduce_(value, sizeof(float), 2, NULL, engine::mpi::kFloat, engine::mpi::kSum);
  engine::Allreduce_(value, sizeof(float), 2, op::Reducer<op::Sum, float>, engine::mpi::kFloat,
                     engine::mpi::kSum);
  CheckReducers();
  engine::GetEngine()->Broadcast(value, sizeof(value), 0);

  std::string text = "text";
  Broadcast(&text, 0);
  Broadcast(&model.weights, 0);
  Broadcast(BeginPtr(model.weights), model.weights.size() * sizeof(float), 0);
  rabit::CheckPoint(&model);
  rabit::LazyCheckPoint(&model);
  utils::Check(VersionNumber() == 2 && GetRank() == 0 && GetWorldSize() == 1 && !IsDistributed(),
               "not alone");
  utils::Check(utils::GetTime() <= utils::GetTime() && !GetProcessorName().empty(), "no time");
  TrackerPrintf("%s\n", "ok");
  rabit::Finalize();
  return 0;
}
