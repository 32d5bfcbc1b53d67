#include "src/ps/worker/pieces.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/ps/rows/length_values.h"

namespace phalanx::ps::internal {
namespace {

TableSpec SpecOf(Split split, DType dtype) {
  TableSpec spec;
  spec.name = "t";
  spec.width = 3;
  spec.dtype = spec.wire = dtype;
  spec.split = split;
  spec.block = split == Split::kBlocks ? 2 : 0;
  return spec;
}

std::vector<Piece> Cut(const TableSpec& spec, const Splitter& splitter, absl::Span<const Key> keys,
                       const KeyLists& lists = {}, const std::vector<int32_t>& owners = {},
                       const std::vector<uint32_t>& lengths = {}) {
  std::vector<Piece> pieces;
  Cutter cutter(spec, splitter, keys, kBatchBytes, owners, lengths);
  const auto lists_of = [&](int) -> const KeyLists& { return lists; };
  while (std::optional<Piece> piece = cutter.Next(0, lists_of)) pieces.push_back(*std::move(piece));
  return pieces;
}

TEST(Pieces, HaveAllRowsOnce) {
  for (const Split split : {Split::kRange, Split::kHash, Split::kBlocks}) {
    const TableSpec spec = SpecOf(split, DType::kF64);
    const Splitter splitter(spec, 3);
    std::vector<Key> keys;
    std::vector<double> values;
    for (uint64_t i = 0; i < 70'000; ++i) {
      keys.push_back(i < 40'000 ? i : i * 7);
      for (int element = 0; element < 3; ++element)
        values.push_back(static_cast<double>(i) + element);
    }
    keys.push_back(std::numeric_limits<Key>::max());
    values.insert(values.end(), 3, 0.5);
    std::vector<double> out(values.size(), -1);
    uint64_t rows = 0;
    std::vector<uint32_t> numbers(3, 0);
    std::vector<Key> last(3, 0);
    for (const Piece& piece : Cut(spec, splitter, keys)) {
      EXPECT_EQ(piece.number, numbers[piece.server]++);
      const std::string wire = GatherRows(spec, piece, values.data());
      EXPECT_EQ(wire.size(), piece.keys.count * LeastRowBytes(spec));
      EXPECT_LE(wire.size() + piece.keys.bytes(), kBatchBytes);
      ScatterRows(spec, piece, wire, out.data());
      rows += piece.keys.count;
      const Key first = piece.keys.list == nullptr ? piece.keys.begin : piece.keys.list->front();
      EXPECT_EQ(splitter.PartOf(first), piece.server);
      EXPECT_TRUE(piece.number == 0 || first > last[piece.server]);
      last[piece.server] =
          piece.keys.list == nullptr ? first + piece.keys.count - 1 : piece.keys.list->back();
    }
    EXPECT_EQ(rows, keys.size());
    EXPECT_EQ(out, values);
  }
}

TEST(Pieces, FollowTheProgramsServers) {
  const TableSpec spec = SpecOf(Split::kOwn, DType::kI64);
  const std::vector<Key> keys = {1, 2, 3, 7, 8};
  const std::vector<Piece> pieces = Cut(spec, Splitter(spec, 3), keys, {}, {2, 2, 0, 2, 0});
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].server, 0);
  EXPECT_EQ(*pieces[0].keys.list, (std::vector<Key>{3, 8}));
  EXPECT_EQ(pieces[0].rows, (std::vector<uint32_t>{2, 4}));
  EXPECT_EQ(pieces[1].server, 2);
  EXPECT_EQ(*pieces[1].keys.list, (std::vector<Key>{1, 2, 7}));
}

// Each server has work from the beginning, however many keys there are.
TEST(Pieces, OfSeveralServersComeInTurn) {
  for (const Split split : {Split::kRange, Split::kHash, Split::kBlocks}) {
    TableSpec spec = SpecOf(split, DType::kF64);
    spec.keys = split == Split::kHash ? 0 : 300'000;
    std::vector<Key> keys;
    for (uint64_t i = 0; i < 150'000; ++i) keys.push_back(i * 2);
    const std::vector<Piece> pieces = Cut(spec, Splitter(spec, 3), keys);
    ASSERT_GE(pieces.size(), 9u);
    std::vector<uint32_t> counts(3, 0);
    for (size_t i = 0; i < 6; ++i) ++counts[pieces[i].server];
    for (const uint32_t count : counts) EXPECT_GE(count, 1u) << static_cast<int>(split);
  }
}

TEST(Pieces, ShareAListThatTheChannelHas) {
  const TableSpec spec = SpecOf(Split::kRange, DType::kF64);
  std::vector<Key> keys;
  for (uint64_t i = 0; i < 10'000; ++i) keys.push_back(i * 2);
  KeyLists lists;
  for (Piece& piece : Cut(spec, Splitter(spec, 1), keys)) ToWire(0, piece.keys, lists);
  ASSERT_GT(lists.size(), 1u);
  for (const Piece& piece : Cut(spec, Splitter(spec, 1), keys, lists)) {
    EXPECT_EQ(piece.keys.list, lists.Find(HashOf(0, *piece.keys.list)));
  }
}

TEST(Pieces, OneRowCanBeGreaterThanABatch) {
  TableSpec spec = SpecOf(Split::kRange, DType::kI64);
  spec.width = kMaxWidth;
  const std::vector<Piece> pieces = Cut(spec, Splitter(spec, 1), {1, 2, 9});
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[1].keys.begin, 2u);
  EXPECT_EQ(pieces[2].first, 2u);
}

// A table whose rows have 0 to 4,000 elements, most of them a few.
struct Ragged {
  explicit Ragged(Split split) : spec(SpecOf(split, DType::kF32)) {
    spec.width = 4'000;
    spec.lengths = true;
    spec.wire = DType::kBf16;
    for (uint64_t i = 0; i < 30'000; ++i) {
      keys.push_back(i < 20'000 ? i : i * 7);
      lengths.push_back(static_cast<uint32_t>(i % 1'000 == 7 ? 4'000 : i * i % 11));
      // Of 8 bits: they travel without a change.
      for (uint32_t j = 0; j < lengths.back(); ++j) {
        values.push_back(static_cast<float>((i + j) % 251));
      }
    }
  }

  TableSpec spec;
  std::vector<Key> keys;
  std::vector<uint32_t> lengths;
  std::vector<float> values;
};

TEST(Pieces, OfRowsWithLengthsHaveAllRowsOnce) {
  for (const Split split : {Split::kRange, Split::kHash, Split::kBlocks}) {
    const Ragged ragged(split);
    const std::vector<uint64_t> starts = StartsOf(ragged.lengths);
    RowData out{.lengths = std::vector<uint32_t>(ragged.keys.size()), .starts = starts};
    out.bytes.resize(ragged.values.size() * sizeof(float));
    const std::vector<Piece> pieces =
        Cut(ragged.spec, Splitter(ragged.spec, 3), ragged.keys, {}, {}, ragged.lengths);
    EXPECT_GE(pieces.size(), ragged.values.size() * 2 / kBatchBytes);
    std::vector<LengthAnswer> answers(pieces.size());
    for (size_t i = 0; i < pieces.size(); ++i) {
      const std::string wire =
          GatherLengthRows(ragged.spec, pieces[i], ragged.lengths, starts, ragged.values.data());
      EXPECT_LE(wire.size() + pieces[i].keys.bytes(), kBatchBytes + sizeof(uint32_t));
      ASSERT_TRUE(TakeLengthRows(ragged.spec, pieces[i], wire, answers[i], out).ok());
      EXPECT_EQ(answers[i].count, pieces[i].keys.count);
    }
    EXPECT_EQ(out.lengths, ragged.lengths);
    for (size_t i = 0; i < pieces.size(); ++i) {
      ScatterLengthRows(ragged.spec, pieces[i], answers[i].values, out);
    }
    const PulledRows pulled(std::move(out));
    const absl::Span<const float> values = pulled.values<float>();
    EXPECT_EQ(std::vector<float>(values.begin(), values.end()), ragged.values);
    EXPECT_EQ(pulled.row<float>(1'007).size(), 4'000u);
    EXPECT_EQ(pulled.row<float>(1'007).data(), values.data() + starts[1'007]);
  }
}

TEST(Pieces, OfRowsWithLengthsCanHaveSeveralAnswers) {
  TableSpec spec = SpecOf(Split::kRange, DType::kI32);
  spec.lengths = true;
  const std::vector<Piece> pieces = Cut(spec, Splitter(spec, 1), {1, 2, 9});
  ASSERT_EQ(pieces.size(), 1u);
  const auto answer = [](const std::vector<uint32_t>& lengths) {
    size_t elements = 0;
    for (const uint32_t length : lengths) elements += length;
    return LengthsHead(lengths) + std::string(elements * sizeof(int32_t), 'x');
  };
  LengthAnswer taken;
  RowData out{.lengths = {7, 7, 7}};
  EXPECT_TRUE(TakeLengthRows(spec, pieces[0], answer({2, 0}), taken, out).ok());
  EXPECT_EQ(taken.count, 2u);
  for (const std::vector<uint32_t>& wrong : {std::vector<uint32_t>{}, {1, 1}, {4}}) {
    EXPECT_FALSE(TakeLengthRows(spec, pieces[0], answer(wrong), taken, out).ok());
  }
  EXPECT_TRUE(TakeLengthRows(spec, pieces[0], answer({3}), taken, out).ok());
  EXPECT_EQ(out.lengths, (std::vector<uint32_t>{2, 0, 3}));
  EXPECT_EQ(taken.values.size(), 5 * sizeof(int32_t));
}

}  // namespace
}  // namespace phalanx::ps::internal
