// The cache of measured figures of links. Without it, jobs would measure at each start, or choose plans by
// the figures of another machine.

#include "ddl/context/calibration.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "ddl/context.hpp"
#include "support/temporary_directory.hpp"

namespace ddl {
namespace {

using topology::Measurement;
using topology::WayKind;

constexpr int ranks = 4;

/// A job's log messages and topology.
struct Job {
  std::string messages;
  std::shared_ptr<const topology::Topology> topology;
};

Job run_job(ProbeUse probe, const std::filesystem::path& directory) {
  InProcessOptions options;
  options.context.deadline = std::chrono::seconds(60);
  options.context.topology = "ethernet:2x2";
  options.context.probe = probe;
  options.context.cache_directory = directory;
  options.context.debug_level = 1;
  Job job;
  testing::internal::CaptureStderr();
  run_in_process(
      ranks,
      [&](Context& context) {
        std::vector<float> values(1'000, 1);
        context.communicator().all_reduce(std::span(values));
        EXPECT_EQ(values, std::vector<float>(1'000, ranks));
        if (context.is_root()) job.topology = context.topology();
      },
      options);
  job.messages = testing::internal::GetCapturedStderr();
  return job;
}

topology::Topology plain() { return topology::make_preset("ethernet:2x2"); }

using test::contents;

TEST(Calibration, MeasuresOnceAndUsesTheFiguresInLaterJobs) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path cache = directory.path() / "not" / "yet there";
  const std::filesystem::path file = MeasurementCache(cache).path_for(plain());

  EXPECT_EQ(*run_job(ProbeUse::off, cache).topology, plain());
  EXPECT_EQ(*run_job(ProbeUse::cached, cache).topology, plain()) << "measured without being told to";
  EXPECT_FALSE(std::filesystem::exists(file));

  const Job measured = run_job(ProbeUse::on, cache);
  EXPECT_NE(measured.messages.find("links measured"), std::string::npos) << measured.messages;
  EXPECT_NE(*measured.topology, plain());
  const auto kept = MeasurementCache(cache).load(plain());
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(*measured.topology, calibrated(plain(), *kept));

  const std::string before = contents(file);
  for (const ProbeUse probe : {ProbeUse::cached, ProbeUse::on}) {
    const Job later = run_job(probe, cache);
    EXPECT_EQ(*later.topology, *measured.topology);
    EXPECT_EQ(later.messages.find("links measured"), std::string::npos) << later.messages;
  }
  EXPECT_EQ(contents(file), before);
  EXPECT_EQ(*run_job(ProbeUse::off, cache).topology, plain());
}

TEST(Calibration, FilesThatAreDamagedOrOfAnotherTopologyAreRefusedAndMeasuredAnew) {
  const test::TemporaryDirectory directory;
  const MeasurementCache cache(directory.path());
  const std::filesystem::path file = cache.path_for(plain());
  const topology::Topology other = topology::make_preset("ethernet:2x3");
  cache.store(other, std::vector<Measurement>{{WayKind::between_hosts, 0, 3, 5, 1}});
  const std::string foreign = contents(cache.path_for(other));
  for (const std::string& text : {std::string(), std::string("{"), foreign, std::string(100'000, ' ')}) {
    std::ofstream(file) << text;
    const Job cached = run_job(ProbeUse::cached, directory.path());
    EXPECT_NE(cached.messages.find("warning: measured figures of links are not used: "), std::string::npos)
        << cached.messages;
    EXPECT_NE(cached.messages.find(file.string()), std::string::npos) << cached.messages;
    EXPECT_EQ(*cached.topology, plain());
    const Job measured = run_job(ProbeUse::on, directory.path());
    EXPECT_NE(measured.messages.find("links measured"), std::string::npos) << measured.messages;
    EXPECT_TRUE(cache.load(plain()).has_value());
  }
}

// A job with a full or read-only disk could not start.
TEST(Calibration, FiguresThatCannotBeKeptAreStillUsed) {
  const test::TemporaryDirectory directory;
  std::ofstream(directory.path() / "file") << "in the way";
  const Job job = run_job(ProbeUse::on, directory.path() / "file" / "cache");
  EXPECT_NE(job.messages.find("warning: measured figures of links are not kept: "), std::string::npos)
      << job.messages;
  EXPECT_NE(*job.topology, plain());
  EXPECT_NE(*run_job(ProbeUse::on, "").topology, plain());
}

}  // namespace
}  // namespace ddl
