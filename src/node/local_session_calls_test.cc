// Calls of sessions with functions of the program, and calls that are under way together, on real
// nodes.
#include <algorithm>
#include <array>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "phalanx/client.h"
#include "phalanx/spmd.h"
#include "src/common/testing/status_matchers.h"
#include "src/node/testing/sessions_fixture.h"

namespace phalanx::runtime {
namespace {

using spmd::ModelFold;
using ::testing::AnyOf;

// Of so many bytes together, at least, values are folded along a tree.
constexpr size_t kAlongTree = size_t{300} << 10;

// Products of them depend on their order.
struct Matrix {
  std::array<uint32_t, 4> cells;
  friend bool operator==(const Matrix&, const Matrix&) = default;
};
Matrix MatrixOf(size_t index, int rank) {
  const auto seed = static_cast<uint32_t>(index * 31 + static_cast<size_t>(rank));
  return {{2 * seed + 1, seed + 3, seed * seed, 5}};
}
void Multiply(Matrix& into, const Matrix& from) {
  const auto& [a, b] = std::pair(into.cells, from.cells);
  into.cells = {a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2],
                a[2] * b[1] + a[3] * b[3]};
}
std::vector<Matrix> MatricesOf(size_t count, int rank) {
  std::vector<Matrix> matrices;
  for (size_t i = 0; i < count; ++i) matrices.push_back(MatrixOf(i, rank));
  return matrices;
}
std::vector<Matrix> Products(size_t count, int world) {
  std::vector<Matrix> products = MatricesOf(count, 0);
  for (int rank = 1; rank < world; ++rank) {
    for (size_t i = 0; i < count; ++i) Multiply(products[i], MatrixOf(i, rank));
  }
  return products;
}

std::string TextOf(size_t size, int rank) {
  std::string text = absl::StrCat("<", rank, ">");
  text.resize(std::max(size, text.size()), static_cast<char>('a' + rank));
  return text;
}
void Append(std::string& into, const std::string& from) { into += from; }
std::string Texts(size_t size, int world) {
  std::string texts;
  for (int rank = 0; rank < world; ++rank) texts += TextOf(size, rank);
  return texts;
}

// What AllreduceModel folds, as functions that live as long as this.
struct Value {
  std::function<std::string()> save;
  std::function<absl::Status(absl::string_view)> add;
  std::function<absl::Status(absl::string_view)> load;
  ModelFold fold() const { return {save, add, load}; }
};

using LocalSessionCallsTest = SessionsFixture;

// ---------------------------------------------------------------------------- folds

TEST_F(LocalSessionCallsTest, ValuesAreFoldedInTheOrderOfRanks) {
  Make(3, 1);
  for (const int world : {1, 2, 3, 5, 8}) {
    world_ = world;
    job_ = absl::StrCat("of", world);
    ForAll([&](Session& session) {
      // Gathered, along a tree, and in two pieces along a chain if that is the plan.
      for (const size_t count : {size_t{1}, size_t{1000}, size_t{70'000}, size_t{140'001}}) {
        std::vector<Matrix> matrices = MatricesOf(count, session.rank());
        EXPECT_THAT(session.AllreduceBy(absl::MakeSpan(matrices), Multiply), IsOk());
        EXPECT_EQ(matrices, Products(count, world)) << count << " matrices of " << world;
      }
      for (const size_t size : {size_t{3}, size_t{1001}, kAlongTree}) {
        std::string text = TextOf(size, session.rank());
        EXPECT_THAT(session.AllreduceModel(text, Append), IsOk());
        EXPECT_EQ(text, Texts(size, world)) << size << " bytes of " << world;
      }
      // Other sizes, and none.
      for (const size_t size : {size_t{0}, size_t{10}, kAlongTree}) {
        std::string text(size * static_cast<size_t>(session.rank() % 2), 'x');
        EXPECT_THAT(session.AllreduceModel(text, Append), IsOk());
        EXPECT_EQ(text, std::string(size * static_cast<size_t>(world / 2), 'x'));
      }
      EXPECT_EQ(session.seq(), 10u);
      EXPECT_THAT(session.Leave(), IsOk());
    });
  }
}

TEST_F(LocalSessionCallsTest, ALargeVectorOfFloatsHasTheSameBitsOnAllRanks) {
  Make(2, 5);
  constexpr size_t kFloats = size_t{2} << 20;
  std::vector<std::vector<float>> sums(5);
  ForAll([&](Session& session) {
    const auto rank = static_cast<size_t>(session.rank());
    std::vector<float>& sum = sums[rank];
    sum.resize(kFloats);
    EXPECT_THAT(session.AllreduceBy(
                    absl::MakeSpan(sum), [](float& into, const float& from) { into += from; },
                    [&] {
                      for (size_t i = 0; i < kFloats; ++i) sum[i] = kValues[(i + rank) % 3];
                    }),
                IsOk());
    EXPECT_EQ(session.stats().prepared, 1u);
    EXPECT_THAT(session.Leave(), IsOk());
  });
  for (size_t i = 0; i < 3; ++i) {
    // A chain: the last rank's value is the first to be folded.
    float expected = kValues[(i + 4) % 3];
    for (const size_t rank : {3, 2, 1, 0}) expected = kValues[(i + rank) % 3] + expected;
    EXPECT_EQ(sums[0][i], expected);
  }
  for (const std::vector<float>& sum : sums) EXPECT_EQ(sum, sums[0]);
}

TEST_F(LocalSessionCallsTest, WhatARankThatFoldsHasPutIsFreed) {
  Make(1, 2);
  // Together more than the node has room for.
  ForAll([](Session& session) {
    std::string model;
    EXPECT_THAT(session.Load(model), IsOkAndHolds(0u));
    for (int version = 1; version <= 20; ++version) {
      std::vector<Matrix> matrices(size_t{1} << 20, MatrixOf(1, 2));
      ASSERT_THAT(session.AllreduceBy(absl::MakeSpan(matrices), Multiply), IsOk()) << version;
      ASSERT_THAT(session.Checkpoint(model), IsOk()) << version;
    }
    EXPECT_THAT(session.Leave(), IsOk());
  });
}

TEST_F(LocalSessionCallsTest, ARepeatedFoldNeedsNoInput) {
  Make(2, 3);
  for (const size_t count : {size_t{100}, size_t{70'000}}) {
    job_ = absl::StrCat("repeats", count);
    const auto run = [&](Session& session) {
      std::vector<Matrix> matrices(count);
      bool prepared = false;
      EXPECT_THAT(session.AllreduceBy(absl::MakeSpan(matrices), Multiply,
                                      [&] {
                                        prepared = true;
                                        const auto input = MatricesOf(count, session.rank());
                                        std::copy(input.begin(), input.end(), matrices.begin());
                                      }),
                  IsOk());
      EXPECT_EQ(matrices, Products(count, 3));
      std::string text;
      EXPECT_THAT(
          session.AllreduceModel(text, Append, [&] { text = TextOf(16 * count, session.rank()); }),
          IsOk());
      EXPECT_EQ(text, Texts(16 * count, 3));
      EXPECT_EQ(prepared, session.life() == 0);
      EXPECT_EQ(session.stats().prepared, session.life() == 0 ? 2u : 0u);
    };
    const std::vector<int> none = RunWithDeaths(1, {1}, [&](Session& session, Points& points) {
      run(session);
      if (session.rank() == 1) points.Pass();
      EXPECT_THAT(session.Leave(), IsOk());
    });
    EXPECT_EQ(none[1], 1);
  }
}

TEST_F(LocalSessionCallsTest, RanksThatDifferInAFoldAllGetTheError) {
  Make(2, 3);
  int cases = 0;
  const auto differ = [&](const std::function<absl::Status(Session&)>& call,
                          const std::string& text) {
    job_ = absl::StrCat("differ", ++cases);
    ForAll([&](Session& session) {
      EXPECT_THAT(call(session), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
      EXPECT_THAT(session.Barrier(), StatusIs(absl::StatusCode::kInvalidArgument));
    });
  };
  const auto fold = [](Session& session, size_t floats, bool doubles) {
    std::vector<float> vector(floats);
    if (!doubles) {
      return session.AllreduceBy(absl::MakeSpan(vector), [](float&, const float&) {});
    }
    return session.AllreduceBy(vector.data(), floats * 4, 8, [](void*, const void*, uint64_t) {});
  };
  const auto third = [](Session& session) { return session.rank() == 2; };
  differ([&](Session& s) { return fold(s, third(s) ? 4 : 2, false); }, "AllGather(32 bytes");
  differ([&](Session& s) { return fold(s, 2, third(s)); },
         "rank 0 gives 8 bytes of elements of 4, and rank 2 8 bytes of elements of 8");
  differ([&](Session& s) { return fold(s, third(s) ? 100'002 : 100'000, false); },
         "rank 0 gives 400000 bytes of elements of 4, and rank 2 400008 bytes of elements of 4");
  differ([&](Session& s) { return fold(s, 100'000, third(s)); }, "rank 2 400000 bytes of");
  differ([&](Session& s) { return fold(s, third(s) ? 100'000 : 2, false); }, "AllGather(24 bytes");
  differ(
      [&](Session& s) {
        std::string text = "text";
        return third(s) ? s.AllreduceModel(text, Append) : fold(s, 100'000, false);
      },
      "rank 0 gives 400000 bytes of elements of 4, and rank 2 a model of 4 bytes");
}

TEST_F(LocalSessionCallsTest, ArgumentsOfAFoldThatAreWrongAreRefusedAtOnce) {
  Make(1, 2);
  ForAll([](Session& session) {
    const auto none = [](void*, const void*, uint64_t) {};
    char bytes[8] = {};
    EXPECT_THAT(session.AllreduceBy(bytes, 8, 0, none),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(
        session.AllreduceBy(bytes, 8, 3, none),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("8 bytes of elements of 3")));
    bool prepared = false;
    EXPECT_THAT(session.AllreduceBy(nullptr, 0, 4, none, [&] { prepared = true; }), IsOk());
    EXPECT_FALSE(prepared);
    EXPECT_EQ(session.seq(), 1u);
    EXPECT_THAT(session.Leave(), IsOk());
  });
}

TEST_F(LocalSessionCallsTest, AFoldThatFailsFailsOnAllRanks) {
  Make(2, 5);
  for (const size_t size : {size_t{10}, kAlongTree}) {
    job_ = absl::StrCat("fails", size);
    ForAll([&](Session& session) {
      const Value value{.save = [&] { return TextOf(size, session.rank()); },
                        .add =
                            [&](absl::string_view bytes) {
                              const bool bad = bytes.substr(0, 3) == "<3>";
                              return bad ? absl::DataLossError("value 3 is bad") : absl::OkStatus();
                            },
                        .load = [](absl::string_view) { return absl::OkStatus(); }};
      const absl::Status status = session.AllreduceModel(value.fold());
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                                   AllOf(HasSubstr("AllreduceModel: "), HasSubstr("3 is bad"),
                                         HasSubstr(size == 10 ? "" : "AllreduceModel: rank 2: "))));
      EXPECT_EQ(session.Barrier(), status);
    });
  }
}

TEST_F(LocalSessionCallsTest, AFoldThatThrowsEndsTheSessionUnlessTheCallHasEnded) {
  Make(1, 2);
  bool throws = true;
  for (const size_t count : {size_t{100}, size_t{100'000}}) {
    job_ = absl::StrCat("throws", count);
    const auto fold = [&](uint32_t& into, const uint32_t& from) {
      if (throws) throw Death();
      into += from;
    };
    ForAll([&](Session& session) {
      std::vector<uint32_t> sums(count, 1);
      if (session.rank() == 1) {
        // It has no children. A small vector it folds itself.
        if (count == 100) {
          EXPECT_THROW(session.AllreduceBy(absl::MakeSpan(sums), fold).IgnoreError(), Death);
          EXPECT_THAT(session.Leave(), IsOk());
        } else {
          EXPECT_THAT(session.AllreduceBy(absl::MakeSpan(sums), fold), IsOk());
          EXPECT_EQ(sums, std::vector<uint32_t>(count, 2));
          EXPECT_THAT(session.Leave(), IsOk());
        }
        return;
      }
      EXPECT_THROW(session.AllreduceBy(absl::MakeSpan(sums), fold).IgnoreError(), Death);
      if (count == 100) {
        EXPECT_THAT(session.Leave(), IsOk());
        return;
      }
      EXPECT_THAT(session.Barrier(), StatusIs(absl::StatusCode::kAborted,
                                              HasSubstr("a function of the program has thrown")));
      throws = false;
      // Rank 1 waits for the next life.
      session = Join(0).value();
      std::fill(sums.begin(), sums.end(), 1);
      EXPECT_THAT(session.AllreduceBy(absl::MakeSpan(sums), fold), IsOk());
      EXPECT_EQ(sums, std::vector<uint32_t>(count, 2));
      EXPECT_THAT(session.Leave(), IsOk());
    });
  }
}

// Dies where the input is made, before each fold, and before what it has folded is put.
TEST_F(LocalSessionCallsTest, ARankThatDiesAnywhereInATreeEndsWithTheResult) {
  Make(3, 5);
  const auto program = [&](Session& session, Points& points) {
    std::string text;
    const Value value{.save =
                          [&] {
                            points.Pass();
                            return text;
                          },
                      .add =
                          [&](absl::string_view bytes) {
                            points.Pass();
                            absl::StrAppend(&text, bytes);
                            return absl::OkStatus();
                          },
                      .load =
                          [&](absl::string_view bytes) {
                            text = std::string(bytes);
                            return absl::OkStatus();
                          }};
    const auto prepare = [&] { text = TextOf(kAlongTree, session.rank()); };
    EXPECT_THAT(session.AllreduceModel(value.fold(), prepare), IsOk());
    EXPECT_EQ(text, Texts(kAlongTree, 5));
    EXPECT_THAT(session.Leave(), IsOk());
  };
  job_ = "calm";
  const std::vector<int> points = RunWithDeaths(0, {}, program);
  EXPECT_EQ(points, (std::vector<int>{5, 1, 3, 1, 1}));
  for (const int victim : {0, 1, 2}) {
    for (int point = 1; point <= points[static_cast<size_t>(victim)]; ++point) {
      job_ = absl::StrCat("dies", victim, "at", point);
      RunWithDeaths(victim, {point}, program);
    }
  }
  job_ = "often";
  RunWithDeaths(0, {4, 2, 3}, program);
  job_ = "interior";
  RunWithDeaths(2, {3, 2, 1}, program);
}

TEST_F(LocalSessionCallsTest, ARankThatDiesInAChainEndsWithTheResult) {
  Make(2, 4);
  // Four pieces.
  constexpr size_t kMatrices = (size_t{4} << 20) / sizeof(Matrix);
  const std::vector<Matrix> products = Products(kMatrices, 4);
  const auto program = [&](Session& session, Points& points) {
    std::vector<Matrix> matrices = MatricesOf(kMatrices, session.rank());
    const auto fold = [&](void* into, const void* from, uint64_t count) {
      points.Pass();
      for (uint64_t i = 0; i < count; ++i) {
        Multiply(static_cast<Matrix*>(into)[i], static_cast<const Matrix*>(from)[i]);
      }
    };
    EXPECT_THAT(
        session.AllreduceBy(matrices.data(), kMatrices * sizeof(Matrix), sizeof(Matrix), fold),
        IsOk());
    EXPECT_EQ(matrices, products);
    EXPECT_THAT(session.Leave(), IsOk());
  };
  job_ = "calm";
  EXPECT_EQ(RunWithDeaths(0, {}, program), (std::vector<int>{4, 4, 4, 0}));
  for (const int victim : {0, 1, 2}) {
    job_ = absl::StrCat("dies", victim);
    RunWithDeaths(victim, {3, 2}, program);
  }
}

// What the first life has put stays.
TEST_F(LocalSessionCallsTest, ARankThatHasPutItsFoldIsReplaced) {
  Make(2, 2);
  std::latch put(1), replaced(1);
  std::thread second_life;
  ForAll([&](Session& session) {
    std::string text = TextOf(kAlongTree, session.rank());
    const Value value{.save = [&] { return text; },
                      .add =
                          [&](absl::string_view bytes) {
                            put.count_down();
                            replaced.wait();
                            absl::StrAppend(&text, bytes);
                            return absl::OkStatus();
                          },
                      .load =
                          [&](absl::string_view bytes) {
                            text = std::string(bytes);
                            return absl::OkStatus();
                          }};
    if (session.rank() == 0) {
      EXPECT_THAT(session.AllreduceModel(value.fold()), IsOk());
      EXPECT_EQ(text, Texts(kAlongTree, 2));
      EXPECT_THAT(session.Leave(), IsOk());
      return;
    }
    second_life = std::thread([&] {
      put.wait();
      absl::StatusOr<Session> next = Join(1);
      ASSERT_THAT(next, IsOk());
      replaced.count_down();
      std::string another = TextOf(kAlongTree, 7);
      EXPECT_THAT(next->AllreduceModel(another, Append), IsOk());
      EXPECT_EQ(another, Texts(kAlongTree, 2));
      EXPECT_THAT(next->Leave(), IsOk());
    });
    EXPECT_THAT(session.AllreduceModel(value.fold()), StatusIs(absl::StatusCode::kAborted));
  });
  second_life.join();
}

TEST_F(LocalSessionCallsTest, ARankThatDoesNotFoldInTimeIsNamedOnAllRanks) {
  // A node passes on what rank 0 sends when all ranks there have called.
  Make(4, 4);
  for (const bool dies : {false, true}) {
    peer_timeout_ = absl::Seconds(dies ? 5 : 10);
    job_ = absl::StrCat("dies", dies);
    // The others get the error from the node of rank 0 while that lives.
    std::latch over(3);
    ForAll([&](Session& session) {
      if (session.rank() != 3) {
        std::string text = TextOf(kAlongTree, session.rank());
        EXPECT_THAT(
            session.AllreduceModel(text, Append),
            StatusIs(absl::StatusCode::kDeadlineExceeded,
                     AllOf(HasSubstr(dies ? "3 (worker3"
                                          : "rank 2 is waiting for the fold of rank 3 (worker3)"),
                           HasSubstr(dies ? "has ended" : ""))));
        over.arrive_and_wait();
        return;
      }
      // As AllreduceModel, whose sizes come first.
      std::vector<uint64_t> sizes(8);
      sizes[6] = kAlongTree;
      EXPECT_THAT(session.Allreduce(absl::MakeSpan(sizes), ReduceOp::kBitOr), IsOk());
      dies ? Die(session) : over.wait();
    });
  }
}

// Rank 0 waits for the fold of rank 2, whose next life needs the model.
TEST_F(LocalSessionCallsTest, ARankThatWaitsInATreeSavesItsLazyModel) {
  Make(2, 4);
  const auto program = [&](Session& session, Points& points) {
    std::string model = "none";
    EXPECT_THAT(session.Load(model), IsOkAndHolds(session.life()));
    if (session.version() == 0) {
      EXPECT_THAT(session.Barrier(), IsOk());
      model = "lazy";
      EXPECT_THAT(session.LazyCheckpoint(model), IsOk());
    }
    EXPECT_EQ(model, "lazy");
    std::string text = TextOf(kAlongTree, session.rank());
    const auto add = [&](absl::string_view bytes) {
      if (session.rank() == 2) points.Pass();
      if (bytes.substr(0, 3) == "<2>") {
        EXPECT_EQ(session.stats().checkpoint_bytes, model.size());
      }
      absl::StrAppend(&text, bytes);
      return absl::OkStatus();
    };
    const auto load = [&](absl::string_view bytes) {
      text = std::string(bytes);
      return absl::OkStatus();
    };
    const Value value{.save = [&] { return text; }, .add = add, .load = load};
    EXPECT_THAT(session.AllreduceModel(value.fold()), IsOk());
    EXPECT_EQ(text, Texts(kAlongTree, 4));
    EXPECT_THAT(session.Leave(), IsOk());
  };
  RunWithDeaths(2, {1}, program);
}

// The call that agrees on the sizes is repeated, so the next life does not see the other ranks'.
TEST_F(LocalSessionCallsTest, ARepeatedFoldOfAnotherSizeIsRefused) {
  Make(1, 2);
  // Along a tree, or gathered; two floats take as many bytes as the sizes of a vector.
  constexpr size_t kFloats = 100'000;
  const auto fold = [](Session& session, size_t count) {
    std::vector<float> vector(count);
    return session.AllreduceBy(absl::MakeSpan(vector), [](float&, const float&) {});
  };
  struct Case {
    size_t before;
    size_t now;
    std::string what;
  };
  for (const Case& each :
       {Case{kFloats, kFloats / 2, "400000 bytes"}, Case{kFloats, kFloats * 2, "400000 bytes"},
        Case{kFloats, 2, "the result of call 2 has 32 bytes, not 48"},
        Case{2, kFloats, "the result of call 2 has 48 bytes, not 32"},
        Case{2, 4, "the result of call 2 has 48 bytes, not 64"}}) {
    job_ = absl::StrCat("again", each.before, "and", each.now);
    std::latch over(1);
    std::thread other([&] {
      Session session = Join(0).value();
      EXPECT_THAT(fold(session, each.before), IsOk());
      over.wait();
    });
    {
      Session session = Join(1).value();
      EXPECT_THAT(fold(session, each.before), IsOk());
    }
    Session session = Join(1).value();
    const std::string own =
        absl::StrCat("a repeated call of another size: ", 4 * each.now, " bytes");
    EXPECT_THAT(fold(session, each.now),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(absl::StrCat("version 0, seq 0: AllreduceBy: ", own)),
                               HasSubstr(each.what))));
    over.count_down();
    other.join();
  }
}

// Rank 0 has sent that there is a result, and its node ends before the result has come to another
// one. What rank 1 has put there is lost as well.
TEST_F(LocalSessionCallsTest, ANodeThatEndsWhileTheResultIsSentIsReplaced) {
  Make(2, 4);
  peer_timeout_ = absl::Seconds(30);
  const auto join = [&](int rank, int node) {
    return Session::Join(*Connect(node), OptionsOf(rank)).value();
  };
  const auto fold = [](Session& session) {
    std::string text = TextOf(kAlongTree, session.rank());
    const absl::Status status = session.AllreduceModel(text, Append);
    EXPECT_TRUE(!status.ok() || text == Texts(kAlongTree, 4));
    return status;
  };
  // As AllreduceModel does before it sends the result: the ranks' sizes, and that of the result.
  const auto begin = [](Session& session) {
    std::vector<uint64_t> sizes(8);
    sizes[2 * static_cast<size_t>(session.rank())] = kAlongTree;
    EXPECT_THAT(session.Allreduce(absl::MakeSpan(sizes), ReduceOp::kBitOr), IsOk());
    std::vector<uint64_t> outcome(64);
    outcome[0] = 4 * kAlongTree;
    EXPECT_THAT(session.Broadcast(outcome.data(), 512, 0), IsOk());
  };
  std::latch known(2), dead(1), joined(1);
  std::vector<std::thread> ranks;
  for (const int rank : {0, 1}) {
    ranks.emplace_back([&, rank] {
      {
        Session session = join(rank, 1);
        if (rank == 0) {
          begin(session);
          known.count_down();
          dead.wait();
        } else {
          EXPECT_FALSE(fold(session).ok());
        }
      }
      joined.wait();
      Session session = join(rank, 0);
      EXPECT_THAT(fold(session), IsOk());
      EXPECT_THAT(session.Leave(), IsOk());
    });
  }
  ranks.emplace_back([&] {
    {
      Session session = join(2, 0);
      begin(session);
      known.count_down();
      dead.wait();
    }
    Session session = join(2, 0);
    joined.count_down();
    EXPECT_THAT(fold(session), IsOk());
    EXPECT_THAT(session.Leave(), IsOk());
  });
  ranks.emplace_back([&] {
    Session session = join(3, 0);
    EXPECT_THAT(fold(session), IsOk());
    EXPECT_THAT(session.Leave(), IsOk());
  });
  known.wait();
  cluster_->KillNode(1);
  dead.count_down();
  for (std::thread& rank : ranks) rank.join();
}

TEST_F(LocalSessionCallsTest, WhatIsPutForAFoldIsFreedAfterADeathOfRank0) {
  Make(1, 2);
  RunWithDeaths(0, {1}, [&](Session& session, Points& points) {
    std::string text = TextOf(kAlongTree, session.rank());
    EXPECT_THAT(session.AllreduceModel(text, Append), IsOk());
    if (session.rank() == 0) points.Pass();
    EXPECT_THAT(session.Leave(), IsOk());
  });
  AwaitEmptyStore(0);
}

TEST_F(LocalSessionCallsTest, WhatIsPutForAFoldThatFailsIsFreed) {
  Make(1, 2);
  std::latch empty(1);
  std::thread ranks([&] {
    ForAll([&](Session& session) {
      std::string text = TextOf(kAlongTree, session.rank());
      const Value value{.save = [&] { return text; },
                        .add = [](absl::string_view) { return absl::DataLossError("it is bad"); },
                        .load = [](absl::string_view) { return absl::OkStatus(); }};
      EXPECT_THAT(session.AllreduceModel(value.fold()),
                  StatusIs(absl::StatusCode::kDataLoss, HasSubstr("rank 0: it is bad")));
      empty.wait();
    });
  });
  AwaitEmptyStore(0);
  empty.count_down();
  ranks.join();
}

// ---------------------------------------------------------------------------- calls under way

TEST_F(LocalSessionCallsTest, CallsUnderWayEndInOrderAndBesideOthers) {
  Make(2, 3);
  ForAll([](Session& session) {
    std::string model;
    EXPECT_THAT(session.Load(model), IsOkAndHolds(0u));
    const int rank = session.rank();
    // Small ones and large ones, more than can be under way.
    constexpr size_t kCalls = 600;
    std::vector<std::vector<int64_t>> sums;
    std::vector<Future<Done>> futures;
    std::vector<size_t> order;
    for (size_t i = 0; i < kCalls; ++i) sums.emplace_back(i % 100 == 0 ? 50'000 : 3);
    for (size_t i = 0; i < kCalls; ++i) {
      std::vector<int64_t>& sum = sums[i];
      futures.push_back(session.AllreduceAsync(absl::MakeSpan(sum), ReduceOp::kSum, [&] {
        std::fill(sum.begin(), sum.end(), static_cast<int64_t>(i) + rank);
      }));
      futures.back().OnReady([&order, i](const absl::StatusOr<Done>&) { order.push_back(i); });
      EXPECT_EQ(session.seq(), i + 1);
    }
    int64_t ranks = rank;
    EXPECT_THAT(session.Allreduce(absl::MakeSpan(&ranks, 1)), IsOk());
    EXPECT_EQ(ranks, 3);
    for (size_t i = 0; i < kCalls; ++i) {
      EXPECT_TRUE(futures[i].ready()) << i;
      EXPECT_THAT(futures[i].Wait(), IsOk()) << i;
      EXPECT_EQ(sums[i], std::vector<int64_t>(sums[i].size(), static_cast<int64_t>(3 * i) + 3))
          << i;
    }
    ASSERT_EQ(order.size(), kCalls);
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
    EXPECT_EQ(session.stats().made, kCalls + 2);
    EXPECT_EQ(session.stats().prepared, kCalls);
    EXPECT_THAT(session.Leave(), IsOk());
  });
}

TEST_F(LocalSessionCallsTest, CheckpointAndLeaveWaitForCallsUnderWayAndAnyThreadCan) {
  Make(2, 2);
  ForAll([](Session& session) {
    std::string model;
    std::vector<float> boot(1000, 1), first(100'000, 1), second(100'000, 2);
    const Future<Done> before = session.AllreduceAsync(absl::MakeSpan(boot));
    EXPECT_THAT(session.Load(model), IsOkAndHolds(0u));
    EXPECT_TRUE(before.ready());
    const Future<Done> future = session.AllreduceAsync(absl::MakeSpan(first));
    std::thread other([&] {
      EXPECT_THAT(future.Wait(kDeadline), IsOk());
      EXPECT_EQ(first, std::vector<float>(100'000, 2));
    });
    EXPECT_THAT(session.Checkpoint(model), IsOk());
    EXPECT_TRUE(future.ready());
    EXPECT_EQ(session.seq(), 0u);
    const Future<Done> last = session.AllreduceAsync(absl::MakeSpan(second));
    EXPECT_EQ(session.seq(), 1u);
    EXPECT_THAT(session.Leave(), IsOk());
    EXPECT_TRUE(last.ready());
    EXPECT_EQ(second, std::vector<float>(100'000, 4));
    other.join();
    EXPECT_THAT(session.AllreduceAsync(absl::MakeSpan(second)).Wait(),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("the rank has left")));
  });
}

// Its next life repeats those that have ended, and makes the others.
TEST_F(LocalSessionCallsTest, ARankThatDiesWithCallsUnderWayEndsWithTheResults) {
  Make(2, 3);
  constexpr size_t kCalls = 20;
  std::vector<std::vector<uint64_t>> results(3);
  ForAllRanks([&](int rank) {
    for (int life = rank == 1 ? 0 : 3; life < 4; ++life) {
      std::vector<std::vector<uint64_t>> sums(kCalls, std::vector<uint64_t>(30'000));
      std::vector<Future<Done>> futures;
      absl::StatusOr<Session> session = Join(rank);
      ASSERT_THAT(session, IsOk());
      // The lives before the last one make more and more calls, and await the first ones.
      const size_t calls = life < 3 ? 5 * (static_cast<size_t>(life) + 1) : kCalls;
      for (size_t i = 0; i < calls; ++i) {
        std::vector<uint64_t>& sum = sums[i];
        futures.push_back(session->AllreduceAsync(absl::MakeSpan(sum), ReduceOp::kSum, [&] {
          for (size_t j = 0; j < sum.size(); ++j) sum[j] = i + j + static_cast<size_t>(rank);
        }));
      }
      if (life < 3) {
        EXPECT_THAT(futures[calls / 2].Wait(), IsOk());
        { const Session ends = *std::move(session); }
        for (const Future<Done>& future : futures) {
          EXPECT_THAT(future.Wait(), AnyOf(IsOk(), StatusIs(absl::StatusCode::kCancelled)));
        }
        continue;
      }
      EXPECT_THAT(session->Barrier(), IsOk());
      for (size_t i = 0; i < kCalls; ++i) {
        EXPECT_THAT(futures[i].Wait(), IsOk()) << i;
        EXPECT_EQ(sums[i][7], 3 * (i + 7) + 3) << i;
      }
      EXPECT_EQ(session->stats().repeated > 0, rank == 1);
      results[static_cast<size_t>(rank)] = sums.back();
      EXPECT_THAT(session->Leave(), IsOk());
    }
  });
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

// The program can change its model when it has the result.
TEST_F(LocalSessionCallsTest, ALazyCheckpointIsWrittenBeforeACallThatIsNotAwaited) {
  Make(1, 2);
  ForAll([](Session& session) {
    std::string model = "model";
    EXPECT_THAT(session.Load(model), IsOkAndHolds(0u));
    float number = 1;
    EXPECT_THAT(session.Allreduce(absl::MakeSpan(&number, 1)), IsOk());
    EXPECT_THAT(session.LazyCheckpoint(model), IsOk());
    EXPECT_EQ(session.stats().checkpoint_bytes, 0u);
    const Future<Done> future = session.AllreduceAsync(absl::MakeSpan(&number, 1));
    EXPECT_EQ(session.stats().checkpoint_bytes, model.size());
    EXPECT_THAT(future.Wait(), IsOk());
    EXPECT_THAT(session.LazyCheckpoint(model), IsOk());
    EXPECT_EQ(session.stats().checkpoint_bytes, model.size());
    EXPECT_THAT(session.Leave(), IsOk());
  });
}

TEST_F(LocalSessionCallsTest, AnErrorOfACallUnderWayEndsTheLaterOnes) {
  Make(1, 2);
  ForAll([](Session& session) {
    std::vector<float> first(10), second(session.rank() == 0 ? 2 : 3), third(10);
    std::vector<Future<Done>> futures;
    for (std::vector<float>* vector : {&first, &second, &third}) {
      futures.push_back(session.AllreduceAsync(absl::MakeSpan(*vector)));
    }
    EXPECT_THAT(futures[0].Wait(), IsOk());
    const absl::Status differs = futures[1].Wait().status();
    EXPECT_THAT(differs,
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(absl::StrCat("job train/worker, rank ", session.rank(),
                                                      ", version 0, seq 1: AllreduceAsync")),
                               HasSubstr("8 bytes"), HasSubstr("12 bytes"))));
    EXPECT_EQ(futures[2].Wait().status(), differs);
    EXPECT_EQ(session.Barrier(), differs);
    EXPECT_EQ(session.AllreduceAsync(absl::MakeSpan(third)).Wait().status(), differs);
    EXPECT_EQ(session.Leave(), differs);
  });
}

TEST_F(LocalSessionCallsTest, ACallUnderWayBehindAnErrorWaitsForNoOtherRank) {
  Make(1, 2);
  peer_timeout_ = 10 * kDeadline;
  std::latch over(1);
  ForAll([&](Session& session) {
    std::vector<float> first(session.rank() == 0 ? 2 : 3), second(10);
    const Future<Done> differs = session.AllreduceAsync(absl::MakeSpan(first));
    if (session.rank() == 1) return over.wait();  // it lives, and does not make the second call
    const Future<Done> later = session.AllreduceAsync(absl::MakeSpan(second));
    EXPECT_THAT(differs.Wait(), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_EQ(later.Wait(kDeadline).status(), differs.Wait().status());
    over.count_down();
  });
}

TEST_F(LocalSessionCallsTest, ACallUnderWayThatIsCancelledEndsTheSession) {
  Make(1, 2);
  std::latch cancelled(1);
  ForAll([&](Session& session) {
    std::vector<float> vector(10);
    if (session.rank() == 1) return cancelled.wait();
    const Future<Done> future = session.AllreduceAsync(absl::MakeSpan(vector));
    future.Cancel();
    EXPECT_THAT(future.Wait(), StatusIs(absl::StatusCode::kCancelled));
    EXPECT_THAT(session.Barrier(), StatusIs(absl::StatusCode::kCancelled));
    cancelled.count_down();
  });
}

TEST_F(LocalSessionCallsTest, ArgumentsOfACallUnderWayThatAreWrongEndNothing) {
  Make(1, 2);
  ForAll([](Session& session) {
    float number = 1;
    EXPECT_THAT(session.AllreduceAsync(absl::MakeSpan(&number, 1), ReduceOp::kBitOr).Wait(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("seq 0: AllreduceAsync")));
    EXPECT_THAT(session.AllreduceAsync(DType::kF32, &number, 3, ReduceOp::kSum).Wait(),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_EQ(session.seq(), 0u);
    const Future<Done> none = session.AllreduceAsync(absl::Span<float>());
    EXPECT_TRUE(none.ready());
    EXPECT_THAT(none.Wait(), IsOk());
    EXPECT_EQ(session.seq(), 1u);
    EXPECT_THAT(session.Leave(), IsOk());
  });
}

}  // namespace
}  // namespace phalanx::runtime
