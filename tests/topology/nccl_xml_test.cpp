#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "topology/graph_support.hpp"
#include "topology/nccl_xml_samples.hpp"

namespace ddl::topology {
namespace {

using Names = std::vector<std::string>;

Topology import(const std::string& text) {
  const std::array texts{text};
  const std::array<std::string, 1> sources{"dump.xml"};
  return topology_from_nccl_xml(texts, sources);
}

std::string import_error(const std::string& text) {
  return error_of([&] { import(text); });
}

/// The sample with the first occurrence of a piece replaced.
std::string changed(std::string text, std::string_view piece, std::string_view replacement) {
  const auto at = text.find(piece);
  if (at == text.npos) ADD_FAILURE() << "no " << piece;
  return text.replace(at, piece.size(), replacement);
}

double bandwidth(const Topology& topology, const std::string& a, const std::string& b, LinkKind kind) {
  const int first = find(topology, a);
  for (const int index : topology.links_at(first)) {
    const Link& link = topology.links()[static_cast<std::size_t>(index)];
    if (link.kind == kind && topology.other_end(index, first) == find(topology, b)) return link.bandwidth;
  }
  return 0;
}

// Plans from a dump of a machine would use links that the machine does not have.
TEST(NcclXml, ReadsACubeMesh) {
  const Topology topology = import(dgx1_like_xml());
  EXPECT_EQ(topology.hosts(), Names{"h0"});
  ASSERT_EQ(topology.devices().size(), 8U);
  for (std::size_t d = 0; d < 8; ++d) {
    EXPECT_EQ(topology.nodes()[static_cast<std::size_t>(topology.devices()[d])].name,
              fmt::format("h0/gpu{}", d));
  }
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/gpu0", "h0/gpu1", LinkKind::nvlink), 40);  // two links of 20
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/gpu0", "h0/gpu2", LinkKind::nvlink), 20);
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/gpu0", "h0/gpu7", LinkKind::nvlink), 0);
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/package0", "h0/package1", LinkKind::socket), 6);  // Broadwell
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/nic0", "network", LinkKind::network), 12.5);
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/gpu0", "h0/pcie0000:04:00.0", LinkKind::pcie), 12);
  EXPECT_EQ(route_names(topology, "h0/gpu0", "h0/gpu1"), (Names{"h0/gpu0", "h0/gpu1"}));
  EXPECT_EQ(route_names(topology, "h0/gpu0", "h0/gpu7"),
            (Names{"h0/gpu0", "h0/pcie0000:04:00.0", "h0/package0", "h0/package1", "h0/pcie0000:87:00.0",
                   "h0/gpu7"}));
  EXPECT_EQ(route_names(topology, "h0/gpu1", "network"),
            (Names{"h0/gpu1", "h0/pcie0000:04:00.0", "h0/nic0", "network"}));
}

TEST(NcclXml, ReadsNvlinkToTheCpu) {
  const Topology topology = import(ac922_like_xml());
  EXPECT_EQ(topology.devices().size(), 4U);
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/gpu0", "h0/gpu1", LinkKind::nvlink), 60);
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/gpu3", "h0/package8", LinkKind::nvlink), 60);
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/package0", "h0/package8", LinkKind::socket), 32);
  // The route uses NVLink, although the GPUs are connected by PCIe too.
  const auto way = topology.route(find(topology, "h0/gpu0"), find(topology, "h0/gpu2"));
  ASSERT_EQ(way.size(), 3U);
  EXPECT_EQ(topology.links()[static_cast<std::size_t>(link_of(way[0]))].kind, LinkKind::nvlink);
  EXPECT_EQ(topology.links()[static_cast<std::size_t>(link_of(way[2]))].kind, LinkKind::nvlink);
}

TEST(NcclXml, ReadsNvswitchesAndPortsThatShareASlot) {
  const Topology topology = import(nvswitch_xml());
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/gpu0", "h0/nvswitch", LinkKind::nvlink), 18 * 20.6);
  EXPECT_EQ(route_names(topology, "h0/gpu0", "h0/gpu1"), (Names{"h0/gpu0", "h0/nvswitch", "h0/gpu1"}));
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/package0", "h0/pcie0000:30:00.0", LinkKind::pcie), 48);
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/nic0", "h0/pcie0000:30:00.0", LinkKind::pcie), 48);
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/nic1", "network", LinkKind::network), 25);
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/nic2", "network", LinkKind::network), 1.25);  // speed -1: unknown
  EXPECT_DOUBLE_EQ(bandwidth(topology, "h0/nic2", "h0/package0", LinkKind::pcie), 5000);
}

TEST(NcclXml, JoinsHostsByANetwork) {
  const std::array texts{dgx1_like_xml(), ac922_like_xml()};
  const std::array<std::string, 2> sources{"a.xml", "b.xml"};
  const Topology topology = topology_from_nccl_xml(texts, sources);
  EXPECT_EQ(topology.hosts(), (Names{"h0", "h1"}));
  EXPECT_EQ(topology.devices().size(), 12U);
  EXPECT_EQ(
      route_names(topology, "h0/gpu0", "h1/gpu0"),
      (Names{"h0/gpu0", "h0/pcie0000:04:00.0", "h0/nic0", "network", "h1/nic0", "h1/package0", "h1/gpu0"}));
  EXPECT_EQ(topology_from_json(to_json(topology), "again"), topology);

  const std::array without{dgx1_like_xml(), without_nets(ac922_like_xml())};
  expect_contains(error_of([&] { topology_from_nccl_xml(without, sources); }),
                  "corrupt_data: b.xml: line 1, <system>: found no <net>, expected at least one in each of "
                  "several hosts");
  expect_contains(error_of([&] { topology_from_nccl_xml(texts, std::span(sources).first(1)); }),
                  "invalid_argument: topology_from_nccl_xml: found 2 texts and 1 sources");
  expect_contains(error_of([&] { topology_from_nccl_xml({}, {}); }), "found 0 texts and 0 sources");
}

TEST(NcclXml, OneHostNeedsNoNetwork) {
  const Topology topology = import(without_nets(ac922_like_xml()));
  for (const Node& node : topology.nodes()) EXPECT_NE(node.kind, NodeKind::network);
}

TEST(NcclXml, LinksToGpusOfOtherJobsAreLeftOut) {
  const Topology topology = import(
      changed(ac922_like_xml(), R"(<nvlink target="0004:05:00.0")",
              R"(<nvlink target="0009:05:00.0" count="1" tclass="0x030200"/><nvlink target="0004:05:00.0")"));
  EXPECT_EQ(topology, import(ac922_like_xml()));
}

// A damaged dump would be taken for a complete one.
TEST(NcclXml, ErrorsSayWhere) {
  const std::string good = ac922_like_xml();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "line 1: found no element found, expected well-formed XML"},
      {"hello", "line 1: found syntax error"},
      {good.substr(0, good.size() / 2), "expected well-formed XML, whole"},
      {good + good, "expected well-formed XML, whole"},
      {changed(good, "</cpu>", "</pci>"), "found mismatched tag"},
      {changed(good, "<cpu ", "<cpu numaid=\"3\" "), "found duplicate attribute"},
      {"<graphs/>", "line 1, <graphs>: found <graphs>, expected <system>"},
      {"<system/>", "<system>: found no attribute 'version'"},
      {"<system version=\"2\"/>", "<system>: found version '2', expected version 1"},
      {"<system version=\"1\"/>", "<system>: found no <cpu>, expected at least one"},
      {"<system version=\"1\"><gpu/></system>", "<gpu>: found it inside <system>, expected there only: cpu"},
      {"<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\"/></system>", "nodes: found no device"},
      {changed(good, "numaid=\"8\"", "numaid=\"0\""), "<cpu>: found 'package0' a second time"},
      {changed(good, "numaid=\"8\"", "numaid=\"eight\""),
       "<cpu>: found numaid 'eight', expected a number -1 to"},
      {changed(good, "numaid=\"8\"", "numaid=\"8.5\""), "found numaid '8.5'"},
      {changed(good, "numaid=\"8\"", "numaid=\"99999999999999999999\""),
       "found numaid '99999999999999999999'"},
      {changed(good, "numaid=\"8\"", ""), "<cpu>: found no attribute 'numaid'"},
      {changed(good, "arch=\"ppc64\"", ""), "line 2, <cpu>: found no attribute 'arch'"},
      {changed(good, "host_hash=\"0x1\"", "host_hash=\"0x2\""),
       "<cpu>: found another host_hash than before, expected one host in a file"},
      {changed(good, "busid=\"0004:04:00.0\"", ""), "<pci>: found no attribute 'busid'"},
      {changed(good, "busid=\"0004:05:00.0\"", "busid=\"0004:04:00.0\""),
       "<pci>: found busid '0004:04:00.0' a second time"},
      {changed(good, "dev=\"1\"", "dev=\"0\""), "<gpu>: found 'gpu0' a second time"},
      {changed(good, "dev=\"1\"", ""), "<gpu>: found no attribute 'dev'"},
      {changed(good, "sm=\"70\"", "sm=\"0\""), "<gpu>: found sm '0', expected a number 10 to 10000"},
      {changed(good, "<nvlink ", "<link "),
       "<link>: found it inside <gpu>, expected there only: nvlink, c2c"},
      {changed(good, "count=\"3\"", "count=\"-3\""),
       "<nvlink>: found count '-3', expected a number 1 to 1000"},
      {changed(good, "count=\"3\"", "count=\"0\""), "<nvlink>: found count '0'"},
      {changed(good, "count=\"3\"", "count=\"1\""),
       "NVLink of 20 GB/s from h0/gpu0 to h0/gpu1, and 60 back, expected the same in both directions"},
      {changed(good, "tclass=\"0x030200\"", "tclass=\"0x020000\""),
       "<nvlink>: found tclass '0x020000', expected 0x03... (GPU)"},
      {changed(good, "target=\"0004:05:00.0\"", "target=\"0004:04:00.0\""),
       "<nvlink>: found a link of a GPU to itself"},
      {changed(good, "link_width=\"8\"", "link_width=\"999\""),
       "<pci>: found link_width '999', expected a number 0 to 255"},
      {changed(good, "speed=\"100000\"", "speed=\"1e5\""), "<net>: found speed '1e5'"},
      {changed(good, "speed=\"100000\"", "speed=\"99999999999\""), "<net>: found speed '99999999999'"},
      {changed(good, "latency=\"0.000000\"", "latency=\"nan\""), "<net>: found latency 'nan'"},
      {changed(good, "latency=\"0.000000\"", "latency=\"-1\""), "<net>: found latency '-1'"},
  };
  for (const auto& [text, message] : cases) {
    SCOPED_TRACE(message);
    const std::string error = import_error(text);
    expect_contains(error, "corrupt_data: dump.xml: ");
    expect_contains(error, message);
  }
}

TEST(NcclXml, TooMuchIsRefused) {
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "<pci busid=\"0\">";
  expect_contains(import_error("<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\">" + deep),
                  "expected at most 64 deep");
  std::string many = "<system version=\"1\">";
  for (int i = 0; i < 300; ++i) many += fmt::format("<cpu numaid=\"{}\" arch=\"x86_64\"/>", i);
  expect_contains(import_error(many + "</system>"), "found 300 <cpu>, expected at most 256");
  for (int i = 0; i < 70'000; ++i) many += "<cpu/>";
  expect_contains(import_error(many + "</system>"), "found more elements, expected at most 65536");
}

}  // namespace
}  // namespace ddl::topology
