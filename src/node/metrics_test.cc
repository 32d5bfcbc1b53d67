#include "src/node/metrics.h"

#include "gtest/gtest.h"

namespace phalanx::runtime {
namespace {

TEST(MetricsTextTest, SamplesOfOneNameShareAHeading) {
  MetricsText metrics;
  metrics.Gauge("phalanx_node_used_bytes", "Bytes in use.", 12345678901234);
  metrics.Counter("phalanx_shard_up_total", "Connections.", 1, {{"shard", "0"}, {"name", "a"}});
  metrics.Counter("phalanx_shard_up_total", "Connections.", 0.25, {{"shard", "1"}});
  EXPECT_EQ(metrics.text(),
            "# HELP phalanx_node_used_bytes Bytes in use.\n"
            "# TYPE phalanx_node_used_bytes gauge\n"
            "phalanx_node_used_bytes 12345678901234\n"
            "# HELP phalanx_shard_up_total Connections.\n"
            "# TYPE phalanx_shard_up_total counter\n"
            "phalanx_shard_up_total{shard=\"0\",name=\"a\"} 1\n"
            "phalanx_shard_up_total{shard=\"1\"} 0.25\n");
}

TEST(MetricsTextTest, LabelsCannotBreakTheFormat) {
  MetricsText metrics;
  metrics.Gauge("x", "X.", 0, {{"name", "a\"b\\c\nd"}});
  EXPECT_EQ(metrics.text(), "# HELP x X.\n# TYPE x gauge\nx{name=\"a\\\"b\\\\c\\nd\"} 0\n");
}

}  // namespace
}  // namespace phalanx::runtime
