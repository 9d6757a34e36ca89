#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <optional>

#include "support/thrown_error.hpp"
#include "topology/graph_support.hpp"
#include "topology/random_graph.hpp"

namespace ddl::topology {
namespace {

/// A file as people write it: with keys in another order, white space and integers.
constexpr std::string_view by_hand = R"({
  "links": [
    {"latency": 0, "from": "gpu", "to": "cpu", "kind": "pcie", "bandwidth": 12},
    {"from": "cpu", "to": "switch", "kind": "network", "bandwidth": 1.25e1, "latency": 1, "duplex": "half"}],
  "ddl_topology": 1,
  "nodes": [{"kind": "gpu", "host": "h", "name": "gpu"}, {"name": "cpu", "kind": "cpu", "host": "h"},
            {"name": "switch", "kind": "network"}], "hosts": ["h"]})";

std::string json_error(const std::string& text) {
  return error_of([&] { topology_from_json(text, "wiring.json"); });
}

/// `by_hand` with one piece replaced.
std::string changed(std::string_view piece, std::string_view replacement) {
  std::string text(by_hand);
  const auto at = text.find(piece);
  if (at == text.npos) ADD_FAILURE() << "no " << piece;
  return text.replace(at, piece.size(), replacement);
}

// An exported topology would change when imported, and plans made elsewhere would not fit.
TEST(TopologyJson, PresetsComeBackEqual) {
  for (const char* name :
       {"ac922:4", "dgx1v:2", "dgx2:2", "dgx_a100:2", "dgx_h100:2", "ethernet:3x2@1gbit", "host:4"}) {
    SCOPED_TRACE(name);
    const Topology topology = make_preset(name);
    const std::string text = to_json(topology);
    const Topology back = topology_from_json(text, name);
    EXPECT_EQ(back, topology);
    EXPECT_EQ(back.hash(), topology.hash());
    EXPECT_EQ(to_json(back), text);
  }
}

TEST(TopologyJson, RandomGraphsComeBackEqual) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const Topology topology = random_graph(seed, true);
    std::vector<Link> links = topology.links();
    for (std::size_t i = 0; i < links.size(); ++i) {  // figures without a short decimal form
      links[i].bandwidth /= static_cast<double>(i + 3);
      links[i].latency = static_cast<double>(seed) / 7e5;
    }
    const Topology odd(topology.hosts(), topology.nodes(), links);
    EXPECT_EQ(topology_from_json(to_json(odd), "random"), odd);
  }
}

TEST(TopologyJson, NamesWithQuotesComeBack) {
  const Topology topology({"a \"b\" \\c"}, {{"\"", NodeKind::gpu, 0}}, {});
  EXPECT_EQ(topology_from_json(to_json(topology), "quotes"), topology);
}

// ddl-plan would choose other plans than the job that wrote the file.
TEST(TopologyJson, CarriersComeBack) {
  const Topology plain({"h"}, {{"g", NodeKind::gpu, 0}}, {});
  for (const DeviceCarriers& carriers :
       {DeviceCarriers{.exchange = true, .one_shot_bytes = 393216, .nccl = true},
        DeviceCarriers{.exchange = true, .network = true}, DeviceCarriers{.host_memory = true}}) {
    const Topology topology = plain.with_carriers(carriers);
    EXPECT_EQ(topology_from_json(to_json(topology), "carriers"), topology) << to_string(carriers);
    EXPECT_NE(topology.hash(), plain.hash());
    EXPECT_NE(topology, plain);
  }
  EXPECT_EQ(to_string(DeviceCarriers{.exchange = true, .one_shot_bytes = 5, .network = true}),
            "cuda_ipc:5,network");
  for (const char* const wrong : {"", "nvlink", "nccl,nccl", "nccl:5", "cuda_ipc:", "cuda_ipc:x", "nccl,"}) {
    test::expect_error(ErrorCode::invalid_argument, {"expected carriers between GPUs"},
                       [&] { device_carriers_from(wrong); });
  }
}

// Files written by hand would be refused, or read differently from the README.
TEST(TopologyJson, ReadsWhatPeopleWrite) {
  const Topology topology = topology_from_json(by_hand, "wiring.json");
  EXPECT_EQ(topology.hosts(), std::vector<std::string>{"h"});
  EXPECT_EQ(topology.nodes(),
            (std::vector<Node>{
                {"gpu", NodeKind::gpu, 0}, {"cpu", NodeKind::cpu, 0}, {"switch", NodeKind::network, -1}}));
  EXPECT_EQ(topology.links(), (std::vector<Link>{{0, 1, LinkKind::pcie, 12, 0, Duplex::full},
                                                 {1, 2, LinkKind::network, 12.5, 1, Duplex::half}}));
}

// The documentation's example would be refused.
TEST(TopologyJson, TheReadmesExampleCanBeRead) {
  std::ifstream file(DDL_TOPOLOGY_README);
  const std::string readme((std::istreambuf_iterator<char>(file)), {});
  const auto begin = readme.find("```json\n");
  ASSERT_NE(begin, readme.npos);
  const std::string example = readme.substr(begin + 8, readme.find("\n```\n", begin) - begin - 8);
  const Topology topology = topology_from_json(example, "README.md");
  EXPECT_EQ(topology.devices().size(), 3U);
  EXPECT_EQ(topology.links().back().duplex, Duplex::half);
}

// The hash, which names cached measurements, would change between machines and compilers.
TEST(TopologyJson, TheHashIsTheSameEverywhere) {
  const Topology topology({"h"}, {{"c", NodeKind::cpu, 0}, {"p", NodeKind::package, 0}},
                          {{0, 1, LinkKind::memory, 10, 0.1, Duplex::half}});
  constexpr std::string_view text = R"({
  "ddl_topology": 1,
  "hosts": [
    "h"
  ],
  "nodes": [
    {"name":"c","kind":"cpu","host":"h"},
    {"name":"p","kind":"package","host":"h"}
  ],
  "links": [
    {"from":"c","to":"p","kind":"memory","bandwidth":10.0,"latency":0.1,"duplex":"half"}
  ]
}
)";
  EXPECT_EQ(to_json(topology), text);
  EXPECT_EQ(topology.hash(), 5919512857642514285U);  // FNV-1a of the text, computed elsewhere
}

// A user with a damaged or mistyped file would have to search it by eye, or would plan for another machine.
TEST(TopologyJson, ErrorsSayWhere) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "byte 1: found parse error"},
      {"{", "expected one JSON object, whole"},
      {"[]", "top level: found a list, expected an object"},
      {"17", "top level: found 17, expected an object"},
      {"\"x\"", "top level: found 'x', expected an object"},
      {"null", "top level: found null, expected an object"},
      {"{}", "top level: found no key 'ddl_topology'"},
      {std::string(by_hand) + "}", "byte "},
      {std::string(by_hand.substr(0, 200)), "expected one JSON object, whole"},
      {changed("\"ddl_topology\": 1", "\"ddl_topology\": 2"),
       "ddl_topology: found 2, expected 1, the version"},
      {changed("\"ddl_topology\": 1", "\"ddl_topology\": \"1\""),
       "ddl_topology: found '1', expected 1, the version"},
      {changed("\"ddl_topology\": 1", "\"ddl_topology\": [1]"),
       "ddl_topology: found a list, expected 1, the version"},
      {changed("\"ddl_topology\": 1", "\"dll_topology\": 1"),
       "top level: found unknown key 'dll_topology', expected one of ddl_topology, hosts, nodes, links, "
       "carriers"},
      {changed("\"ddl_topology\": 1", "\"links\": []"), "top level: found key 'links' a second time"},
      {changed("\"ddl_topology\": 1,", ""), "top level: found no key 'ddl_topology'"},
      {changed("[\"h\"]", "\"h\""), "hosts: found 'h', expected a list"},
      {changed("[\"h\"]", "{}"), "hosts: found an object, expected a list"},
      {changed("[\"h\"]", "[\"h\", 2]"), "hosts[1]: found 2, expected a string"},
      {changed("[\"h\"]", "[\"h\", [\"i\"]]"), "hosts[1]: found a list, expected a string"},
      {changed("[\"h\"]", "[\"h\", \"h\"]"), "hosts[1]: found 'h' again"},
      {changed("[\"h\"]", "[]"), "nodes[0].host: found 'h', expected one of the names in hosts"},
      {changed("\"kind\": \"gpu\"", "\"kind\": \"tpu\""),
       "nodes[0].kind: found 'tpu', expected one of package, cpu, gpu, fabric, nic, network"},
      {changed("\"kind\": \"gpu\"", "\"kind\": 3"), "nodes[0].kind: found 3, expected one of package"},
      {changed("\"kind\": \"gpu\"", "\"kind\": null"), "nodes[0].kind: found null, expected one of package"},
      {changed("\"kind\": \"gpu\"", "\"kind\": {}"),
       "nodes[0].kind: found an object, expected one of package"},
      {changed("\"kind\": \"gpu\"", "\"kind\": true"), "nodes[0].kind: found true, expected one of package"},
      {changed("\"kind\": \"gpu\",", ""), "nodes[0]: found no key 'kind'"},
      {changed("\"kind\": \"gpu\"", "\"kinds\": \"gpu\""),
       "nodes[0]: found unknown key 'kinds', expected one of name, kind, host"},
      {changed("\"kind\": \"gpu\"", "\"name\": \"gpu\""), "nodes[0]: found key 'name' a second time"},
      {changed("{\"name\": \"switch\", \"kind\": \"network\"}", "7"),
       "nodes[2]: found 7, expected an object"},
      {changed("{\"name\": \"switch\", \"kind\": \"network\"}", "[]"),
       "nodes[2]: found a list, expected an object"},
      {changed("\"network\"}", "\"network\"}, {\"name\": \"gpu\", \"kind\": \"network\"}"),
       "nodes[3].name: found 'gpu' again, expected a name unlike nodes[0]"},
      {changed("\"network\"}", "\"network\", \"host\": \"h\"}"),
       "nodes[2].host: found host 0, expected no host"},
      {changed("\"host\": \"h\", ", ""), "nodes[0].host: found no host, expected one of the 1 hosts"},
      {changed("\"network\"}", "\"network\"}, {\"name\": \"\\u00e4\", \"kind\": \"network\"}"),
       "nodes[3].name: found byte 0xc3, expected printable ASCII"},
      {changed("\"name\": \"switch\"", "\"name\": \"\xff\""), "expected one JSON object, whole"},
      {changed("\"from\": \"gpu\"", "\"from\": \"gpu9\""),
       "links[0].from: found 'gpu9', expected the name of one of nodes"},
      {changed("\"from\": \"gpu\"", "\"from\": 0"), "links[0].from: found 0, expected a string"},
      {changed("\"to\": \"cpu\"", "\"to\": \"gpu\""), "links[0].to: found 'gpu' at both ends"},
      {changed("\"kind\": \"pcie\"", "\"kind\": \"usb\""),
       "links[0].kind: found 'usb', expected one of memory, socket, pcie, nvlink, network"},
      {changed("\"half\"", "\"simplex\""), "links[1].duplex: found 'simplex', expected one of full, half"},
      {changed("\"bandwidth\": 12}", "\"bandwidth\": \"12\"}"),
       "links[0].bandwidth: found '12', expected a number"},
      {changed("\"bandwidth\": 12}", "\"bandwidth\": 0}"),
       "links[0].bandwidth: found 0, expected a number above 0"},
      {changed("\"bandwidth\": 12}", "\"bandwidth\": -12}"), "links[0].bandwidth: found -12"},
      {changed("\"bandwidth\": 12}", "\"bandwidth\": 1e300}"), "links[0].bandwidth: found 1e+300, expected"},
      {changed("\"bandwidth\": 12}", "\"bandwidth\": 1e999}"), "expected one JSON object, whole"},
      {changed("\"bandwidth\": 12}", "\"bandwidth\": NaN}"), "expected one JSON object, whole"},
      {changed("\"bandwidth\": 12}", "\"bandwidth\": -Infinity}"), "expected one JSON object, whole"},
      {changed("\"latency\": 1", "\"latency\": -1"), "links[1].latency: found -1"},
      {changed("\"latency\": 1,", ""), "links[1]: found no key 'latency'"},
      {changed("\"cpu\", \"to\": \"switch\"", "\"cpu\", \"to\": \"gpu\""), ""},
      {changed("\"from\": \"gpu\", \"to\": \"cpu\"", "\"from\": \"gpu\", \"to\": \"switch\""), ""},
      {changed("{\"latency\": 0, \"from\": \"gpu\", \"to\": \"cpu\", \"kind\": \"pcie\", \"bandwidth\": 12},",
               ""),
       "links: found no way from 'gpu' to 'cpu', expected every device to reach every other"},
      {changed("{\"latency\": 0,", std::string(100'000, '[')), "links[0]: found a list"},
  };
  for (const auto& [text, message] : cases) {
    SCOPED_TRACE(text.substr(0, 500) + " must say " + message);
    const std::string error = json_error(text);
    if (message.empty()) {
      EXPECT_EQ(error, "nothing");
      continue;
    }
    expect_contains(error, "corrupt_data: wiring.json: ");
    expect_contains(error, message);
  }
}

// A file truncated by a full disk would be taken for a smaller machine.
TEST(TopologyJson, EveryCutIsNoticed) {
  const std::string text = to_json(make_preset("ac922"));
  for (std::size_t size = 0; size < text.size() - 2; ++size) {  // without the last brace and line end
    expect_contains(json_error(text.substr(0, size)), "corrupt_data: wiring.json: ");
  }
}

// A hostile or broken file would fill the memory.
TEST(TopologyJson, MoreThanAMillionAreRefused) {
  std::string text = R"({"ddl_topology": 1, "nodes": [], "links": [], "hosts": [)";
  for (int i = 0; i < 1'000'001; ++i) text += R"("",)";
  text.back() = ']';
  expect_contains(json_error(text + "}"), "hosts: found more than 1000000 of them, expected at most 1000000");

  text = R"({"ddl_topology": 1, "hosts": ["h"], "links": [], "nodes": [)";
  for (int i = 0; i < 1'000'001; ++i) text += R"({"name":"","kind":"gpu"},)";
  text.back() = ']';
  expect_contains(json_error(text + "}"), "nodes: found more than 1000000 of them, expected at most 1000000");
}

}  // namespace
}  // namespace ddl::topology
