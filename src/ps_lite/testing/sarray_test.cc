#include "ps/sarray.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ps/internal/message.h"
#include "ps/range.h"

namespace ps {
namespace {

template <typename V>
std::vector<V> Elements(const SArray<V>& array) {
  return std::vector<V>(array.begin(), array.end());
}

TEST(SArray, CopiesSegmentsAndCastsAreViews) {
  SArray<int> array({1, 2, 3, 4});
  const SArray<int> copy = array;
  SArray<int> part = array.segment(1, 3);
  part[0] = 7;
  EXPECT_EQ(Elements(copy), (std::vector<int>{1, 7, 3, 4}));
  const SArray<char> bytes(array);
  EXPECT_EQ(bytes.size(), 4 * sizeof(int));
  EXPECT_EQ(static_cast<void*>(bytes.data()), static_cast<void*>(array.data()));
  const SArray<int> back(bytes);
  EXPECT_EQ(Elements(back), Elements(array));
  EXPECT_THROW(SArray<double>(SArray<char>(9)), dmlc::Error);
  EXPECT_THROW(array.segment(3, 2), dmlc::Error);
  EXPECT_THROW(array.segment(0, 5), dmlc::Error);
}

TEST(SArray, VectorsAreCopiedAndSharedVectorsViewed) {
  std::vector<float> values = {1, 2};
  const SArray<float> copy(values);
  const auto shared = std::make_shared<std::vector<float>>(values);
  const SArray<float> view(shared);
  values[0] = (*shared)[0] = 5;
  EXPECT_EQ(copy[0], 1);
  EXPECT_EQ(view[0], 5);
  EXPECT_EQ(shared.use_count(), 2);
}

TEST(SArray, MemoryIsFreedWithTheLastView) {
  int freed = 0;
  SArray<int> part;
  {
    SArray<int> array;
    array.reset(new int[3]{1, 2, 3}, 3, [&freed](int* memory) {
      ++freed;
      delete[] memory;
    });
    part = array.segment(2, 3);
  }
  EXPECT_EQ(freed, 0);
  EXPECT_EQ(part.back(), 3);
  part.clear();
  EXPECT_EQ(freed, 1);
  EXPECT_TRUE(part.empty());
  EXPECT_THROW(part.front(), dmlc::Error);
}

TEST(SArray, GrowsInMemoryOfItsOwn) {
  SArray<int> array({1, 2, 3});
  SArray<int> part = array.segment(0, 2);
  part.push_back(part[0]);
  EXPECT_EQ(Elements(part), (std::vector<int>{1, 2, 1}));
  EXPECT_EQ(array[2], 3);
  part.append(part);
  EXPECT_EQ(Elements(part), (std::vector<int>{1, 2, 1, 1, 2, 1}));
  part.pop_back();
  part.resize(7, 9);
  EXPECT_EQ(Elements(part), (std::vector<int>{1, 2, 1, 1, 2, 9, 9}));
  part.resize(1);
  part.reserve(100);
  EXPECT_EQ(Elements(part), (std::vector<int>{1}));
  EXPECT_GE(part.capacity(), 100u);
  part.CopyFrom(array);
  array[0] = 8;
  EXPECT_EQ(Elements(part), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(SArray<int>(4, 5)[3], 5);
}

TEST(SArray, ShowsItsFirstAndLastElements) {
  std::ostringstream text;
  text << SArray<int>({1, 2});
  EXPECT_EQ(text.str(), "[2]: 1 2 ");
  EXPECT_EQ(DebugStr(SArray<int>(10, 1).data(), 10, 2), "[10]: 1 1 ... 1 1 ");
}

TEST(Range, OfValuesInASortedArray) {
  const SArray<uint64_t> sorted({1, 3, 5, 9});
  const Range range = FindRange<uint64_t>(sorted, 2, 9);
  EXPECT_EQ(range.begin(), 1u);
  EXPECT_EQ(range.end(), 3u);
  EXPECT_EQ(range.size(), 2u);
  EXPECT_EQ(FindRange<uint64_t>(sorted, 5, 5).size(), 0u);
  EXPECT_EQ(Range().size(), 0u);
}

TEST(Message, CountsItsBytesAndTypes) {
  Message message;
  message.AddData(SArray<uint64_t>(2, 1));
  message.AddData(SArray<float>(3, 1));
  message.AddData(SArray<int>());
  EXPECT_EQ(message.meta.data_size, 28);
  EXPECT_EQ(message.meta.data_type, (std::vector<DataType>{UINT64, FLOAT, INT32}));
  EXPECT_NE(message.DebugString().find("data_size=16"), std::string::npos);
}

}  // namespace
}  // namespace ps
