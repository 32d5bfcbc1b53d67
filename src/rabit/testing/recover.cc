// A program of Rabit whose ranks die: three iterations with calls whose results have closed forms.
//
//   recover COUNT global|local|lazy [NAME=VALUE ...]
//
// An iteration has Allreduce by Max (call 0), four Broadcasts of strings (calls 1 to 8), Allreduce
// by Sum (call 9), Allgather (call 10), and a checkpoint: of the global model, of it and a local
// one, or a lazy one. Prints "[RANK] load VERSION", "[RANK] prepare VERSION" and "[RANK] end HASH",
// of its models.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "rabit/rabit.h"

namespace {

constexpr int kIterations = 3;
constexpr size_t kGathered = 7;

class Model : public rabit::Serializable {
 public:
  std::vector<float> data;

  void Load(rabit::Stream* from) override {
    rabit::utils::Check(from->Read(&data), "the model ends early");
  }
  void Save(rabit::Stream* to) const override { to->Write(data); }
};

class Program {
 public:
  Program(size_t count, const std::string& kind)
      : local_kind_(kind == "local"), lazy_kind_(kind == "lazy"), count_(count) {}

  void Run() {
    rank_ = rabit::GetRank();
    world_ = rabit::GetWorldSize();
    int version = rabit::LoadCheckPoint(&model_, local_kind_ ? &local_ : nullptr);
    std::printf("[%d] load %d\n", rank_, version);
    if (version == 0) {
      model_.data.assign(count_, 1.0f);
      local_.data.assign(count_, 1.0f + static_cast<float>(rank_));
    }
    for (; version < kIterations; ++version) {
      Iterate(version);
      if (lazy_kind_) {
        rabit::LazyCheckPoint(&model_);
      } else {
        rabit::CheckPoint(&model_, local_kind_ ? &local_ : nullptr);
      }
      rabit::utils::Check(rabit::VersionNumber() == version + 1, "another version");
    }
    // A lazy model can be needed until Finalize has ended.
    std::printf("[%d] end %llu\n", rank_, static_cast<unsigned long long>(Hash()));
    std::fflush(stdout);
  }

 private:
  // What rank r adds to element i, without its model.
  static float Term(size_t i, int r, int z) {
    return static_cast<float>((i * static_cast<size_t>(r + 1)) % static_cast<size_t>(z));
  }
  // What this rank adds to, and what rank r does.
  float Own(size_t i) const { return local_kind_ ? local_.data[i] : now_[i]; }
  float Base(size_t i, int r) const {
    return now_[i] + (local_kind_ ? static_cast<float>(r) : 0.0f);
  }

  void Iterate(int version) {
    now_ = model_.data;
    now_ = Max(version);
    SetLocal();
    for (int root = 0; root < world_; root += std::max(world_ / 3, 1)) Broadcast(root);
    now_ = Sum(version);
    Gather(version);
    // Not before the last call: a lazy model is needed until then.
    model_.data = now_;
    SetLocal();
  }

  void SetLocal() {
    local_.data = now_;
    for (float& each : local_.data) each += static_cast<float>(rank_);
  }

  std::vector<float> Max(int version) {
    const int z = version + 111;
    std::vector<float> max(count_);
    rabit::Allreduce<rabit::op::Max>(max.data(), max.size(), [&] {
      std::printf("[%d] prepare %d\n", rank_, version);
      for (size_t i = 0; i < count_; ++i) max[i] = Term(i, rank_, z) + Own(i);
    });
    for (size_t i = 0; i < count_; ++i) {
      float expected = 0;
      for (int r = 0; r < world_; ++r) expected = std::max(expected, Term(i, r, z) + Base(i, r));
      rabit::utils::Check(max[i] == expected, "[%d] max %g, not %g", rank_, max[i], expected);
    }
    return max;
  }

  void Broadcast(int root) const {
    std::string expected(count_, '\0');
    for (size_t i = 0; i < count_; ++i) expected[i] = static_cast<char>(i % 126 + 1);
    std::string text = root == rank_ ? expected : "";
    rabit::Broadcast(&text, root);
    rabit::utils::Check(text == expected, "[%d] another text from %d", rank_, root);
  }

  std::vector<float> Sum(int version) const {
    const int z = version + 131;
    std::vector<float> sum(count_);
    for (size_t i = 0; i < count_; ++i) sum[i] = Term(i, rank_, z) + Own(i);
    rabit::Allreduce<rabit::op::Sum>(sum.data(), sum.size());
    for (size_t i = 0; i < count_; ++i) {
      float expected = 0;
      for (int r = 0; r < world_; ++r) expected += Term(i, r, z) + Base(i, r);
      rabit::utils::Check(std::fabs(sum[i] - expected) < 1e-5, "[%d] sum %g, not %g", rank_, sum[i],
                          expected);
    }
    return sum;
  }

  // Rank r has r + kGathered elements.
  void Gather(int version) const {
    const auto size = [](int rank) { return static_cast<size_t>(rank) + kGathered; };
    const auto begin = [size](int rank) {
      size_t sum = 0;
      for (int r = 0; r < rank; ++r) sum += size(r);
      return sum;
    };
    std::vector<double> all(begin(world_), -1);
    for (size_t i = 0; i < size(rank_); ++i) all[begin(rank_) + i] = rank_ + 100.0 * version;
    rabit::Allgather(all.data(), all.size(), begin(rank_), size(rank_),
                     size(rabit::GetRingPrevRank()));
    for (int r = 0; r < world_; ++r) {
      for (size_t i = 0; i < size(r); ++i) {
        rabit::utils::Check(all[begin(r) + i] == r + 100.0 * version, "[%d] gathered %g", rank_,
                            all[begin(r) + i]);
      }
    }
  }

  uint64_t Hash() const {
    uint64_t hash = 0;
    for (const float each : model_.data) {
      uint32_t bits = 0;
      std::memcpy(&bits, &each, sizeof(bits));
      hash = hash * 31 + bits;
    }
    return hash;
  }

  const bool local_kind_;
  const bool lazy_kind_;
  const size_t count_;
  int rank_ = 0;
  int world_ = 0;
  Model model_;
  Model local_;
  std::vector<float> now_;  // the model of the next version, as it grows
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: recover COUNT global|local|lazy [NAME=VALUE ...]\n");
    return 2;
  }
  rabit::Init(argc, argv);
  Program program(static_cast<size_t>(std::atoi(argv[1])), argv[2]);
  program.Run();
  rabit::Finalize();
  return 0;
}
