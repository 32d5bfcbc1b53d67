#include "src/client/connection/name_table.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace phalanx::internal {
namespace {

TEST(NameTableTest, FindsTheNamesThatItHasDerived) {
  NameTable names;
  const ObjectId id = names.Derive("default", "job/7");
  EXPECT_EQ(id, ObjectId::FromName("default", "job/7"));
  EXPECT_EQ(names.Find(id), ObjectName::Of("default", "job/7"));
  EXPECT_TRUE(names.Find(ObjectId::FromName("default", "job/8")).empty());
}

TEST(NameTableTest, DerivesIdsOfNamesThatCannotBeKept) {
  NameTable names;
  EXPECT_EQ(names.Derive("default", "a\nb"), ObjectId::FromName("default", "a\nb"));
  EXPECT_TRUE(names.Find(ObjectId::FromName("default", "a\nb")).empty());
}

TEST(NameTableTest, ForgetsTheOldestBeyondItsLimit) {
  NameTable names;
  for (size_t i = 0; i < NameTable::kMaxNames; ++i) names.Derive("default", absl::StrCat(i));
  // Deriving a name again does not make it younger, and takes no second place.
  names.Derive("default", "0");
  EXPECT_FALSE(names.Find(ObjectId::FromName("default", "0")).empty());
  names.Derive("default", "one more");
  EXPECT_TRUE(names.Find(ObjectId::FromName("default", "0")).empty());
  EXPECT_FALSE(names.Find(ObjectId::FromName("default", "1")).empty());
  EXPECT_FALSE(names.Find(ObjectId::FromName("default", "one more")).empty());
}

TEST(NameTableTest, ForgetsWhatItIsToForget) {
  NameTable names;
  for (size_t i = 0; i < NameTable::kMaxNames; ++i) names.Derive("default", absl::StrCat(i));
  const ObjectId first = ObjectId::FromName("default", "0");
  names.Forget(first);
  names.Forget(first);
  EXPECT_EQ(names.size(), NameTable::kMaxNames - 1);
  EXPECT_TRUE(names.Find(first).empty());
  // It is the youngest one now, and there is room for it.
  names.Derive("default", "0");
  EXPECT_FALSE(names.Find(ObjectId::FromName("default", "1")).empty());
  names.Derive("default", "one more");
  EXPECT_TRUE(names.Find(ObjectId::FromName("default", "1")).empty());
  EXPECT_FALSE(names.Find(first).empty());
  EXPECT_EQ(names.size(), NameTable::kMaxNames);
}

TEST(NameTableTest, ErrorsShowTheNamesOfTheirIds) {
  NameTable names;
  const std::string job = names.Derive("default", "job/7").hex();
  const std::string batch = names.Derive("batch", "x").hex();
  const std::string other = ObjectId::FromName("default", "other").hex();
  const absl::Status status = names.WithNames(absl::NotFoundError(
      absl::StrCat("Get of ", job, " at unix:/run/abc: missing: ", other, ", ", batch)));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(),
            absl::StrCat("Get of \"job/7\" (", job, ") at unix:/run/abc: missing: ", other,
                         ", \"batch:x\" (", batch, ")"));
  EXPECT_EQ(names.WithNames(status), status) << "once is enough";
  // A longer row of digits only begins like the id.
  const std::string longer = absl::StrCat(job, "0");
  EXPECT_EQ(names.WithNames(absl::NotFoundError(longer)).message(), longer);
  EXPECT_TRUE(names.WithNames(absl::OkStatus()).ok());
}

}  // namespace
}  // namespace phalanx::internal
