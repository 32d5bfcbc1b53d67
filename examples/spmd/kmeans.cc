// k-means: each rank has a part of the points, and all have the same centers.
//
//   phalanx launch -n 4 --restarts 8 -- kmeans [POINTS_OF_A_RANK]
//
// In each iteration a rank adds up its points by their nearest center, and an Allreduce adds up
// these sums over all ranks. The centers are the model. A rank that dies makes its points again,
// takes the centers of the last checkpoint, and goes on: the last line is the same bits as in a run
// without deaths.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "phalanx/client.h"
#include "phalanx/spmd.h"

namespace {

constexpr size_t kCenters = 8;
constexpr size_t kDimensions = 4;
constexpr uint64_t kIterations = 20;

struct Centers {
  std::string Save() const {
    return std::string(reinterpret_cast<const char*>(values.data()),
                       values.size() * sizeof(double));
  }
  absl::Status Load(absl::string_view bytes) {
    if (bytes.size() != values.size() * sizeof(double)) {
      return absl::InvalidArgumentError("a checkpoint of other centers");
    }
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  std::vector<double> values = std::vector<double>(kCenters * kDimensions);
};

// Points around the corners of a cube, the same in each life of the rank.
std::vector<double> PointsOf(int rank, size_t count) {
  std::vector<double> points;
  uint64_t state = static_cast<uint64_t>(rank) + 1;
  const auto next = [&state] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state >> 40) / (1 << 24);
  };
  for (size_t point = 0; point < count; ++point) {
    const auto corner = static_cast<uint64_t>(next() * kCenters);
    for (size_t i = 0; i < kDimensions; ++i) {
      points.push_back(static_cast<double>(corner >> i & 1) + 0.3 * (next() - 0.5));
    }
  }
  return points;
}

size_t Nearest(const Centers& centers, const double* point) {
  size_t nearest = 0;
  double least = std::numeric_limits<double>::infinity();
  for (size_t center = 0; center < kCenters; ++center) {
    double distance = 0;
    for (size_t i = 0; i < kDimensions; ++i) {
      distance += std::pow(point[i] - centers.values[center * kDimensions + i], 2);
    }
    if (distance < least) {
      least = distance;
      nearest = center;
    }
  }
  return nearest;
}

// Of each center: the sum of its points, and their number.
void AddPoints(const std::vector<double>& points, const Centers& centers,
               std::vector<double>* sums) {
  for (size_t at = 0; at < points.size(); at += kDimensions) {
    double* const sum = &(*sums)[Nearest(centers, &points[at]) * (kDimensions + 1)];
    for (size_t i = 0; i < kDimensions; ++i) sum[i] += points[at + i];
    ++sum[kDimensions];
  }
}

absl::Status Iterate(phalanx::spmd::Session& session, const std::vector<double>& points,
                     Centers* centers) {
  std::vector<double> sums(kCenters * (kDimensions + 1));
  const absl::Status status = session.Allreduce(absl::MakeSpan(sums), phalanx::ReduceOp::kSum,
                                                [&] { AddPoints(points, *centers, &sums); });
  if (!status.ok()) return status;
  for (size_t center = 0; center < kCenters; ++center) {
    const double* const sum = &sums[center * (kDimensions + 1)];
    for (size_t i = 0; i < kDimensions && sum[kDimensions] > 0; ++i) {
      centers->values[center * kDimensions + i] = sum[i] / sum[kDimensions];
    }
  }
  return session.Checkpoint(*centers);
}

absl::Status Run(size_t count) {
  auto client = phalanx::Client::Connect();
  if (!client.ok()) return client.status();
  auto session = phalanx::spmd::Session::Join(**client);
  if (!session.ok()) return session.status();
  const std::vector<double> points = PointsOf(session->rank(), count);

  // The first centers are points of rank 0. Every life gets them: calls before Load are repeated.
  Centers centers;
  if (session->rank() == 0) {
    std::copy_n(points.begin(), centers.values.size(), centers.values.begin());
  }
  absl::Status status = session->Broadcast(&centers.values, 0);
  if (!status.ok()) return status;
  status = session->Load(centers).status();
  while (status.ok() && session->version() < kIterations) {
    status = Iterate(*session, points, &centers);
  }
  if (!status.ok()) return status;
  if (session->rank() == 0) {
    for (const double value : centers.values) std::cout << std::hexfloat << value << " ";
    std::cout << std::endl;
  }
  return session->Leave();
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = Run(argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 20'000);
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
