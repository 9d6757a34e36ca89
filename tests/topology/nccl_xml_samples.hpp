#pragma once

#include <fmt/format.h>

#include <array>
#include <regex>
#include <string>
#include <string_view>

namespace ddl::topology {

/// Eight V100 in a cube mesh with a PCIe switch for each two of them and a NIC, and two Intel packages.
inline std::string dgx1_like_xml() {
  constexpr std::array<std::string_view, 8> links = {"02112000", "20120100", "11020020", "12200001",
                                                     "20000211", "01002012", "00201102", "00011220"};
  constexpr std::array<int, 4> buses = {0x04, 0x0a, 0x84, 0x87};
  const auto bus_of = [&](std::size_t gpu) { return buses[gpu / 2] + 2 + static_cast<int>(gpu % 2); };
  std::string text = "<system version=\"1\">\n";
  for (std::size_t package = 0; package < 2; ++package) {
    text += fmt::format(
        "  <cpu host_hash=\"0x77\" numaid=\"{}\" affinity=\"ffff\" arch=\"x86_64\" vendor=\"GenuineIntel\" "
        "familyid=\"6\" "
        "modelid=\"79\">\n",
        package);
    for (std::size_t tree = 2 * package; tree < 2 * package + 2; ++tree) {
      text += fmt::format(
          "    <pci busid=\"0000:{:02x}:00.0\" class=\"0x060400\" link_speed=\"8.0 GT/s PCIe\" "
          "link_width=\"16\">\n",
          buses[tree]);
      for (std::size_t gpu = 2 * tree; gpu < 2 * tree + 2; ++gpu) {
        text += fmt::format(
            "      <pci busid=\"0000:{:02X}:00.0\" class=\"0x030200\" link_speed=\"8 GT/s\" "
            "link_width=\"16\">\n"
            "        <gpu dev=\"{}\" sm=\"70\" rank=\"{}\" gdr=\"1\">\n",
            bus_of(gpu), gpu, gpu);
        for (std::size_t peer = 0; peer < 8; ++peer) {
          if (links[gpu][peer] == '0') continue;
          text += fmt::format(
              "          <nvlink target=\"0000:{:02x}:00.0\" count=\"{}\" tclass=\"0x030200\"/>\n",
              bus_of(peer), links[gpu][peer]);
        }
        text += "        </gpu>\n      </pci>\n";
      }
      text += fmt::format(
          "      <pci busid=\"0000:{:02x}:00.0\" class=\"0x020700\" link_speed=\"8.0 GT/s PCIe\" "
          "link_width=\"16\">\n"
          "        <nic><net name=\"mlx5_{}\" dev=\"{}\" speed=\"100000\" port=\"1\" guid=\"0x{}\" "
          "maxconn=\"131072\" "
          "gdr=\"1\"/></nic>\n      </pci>\n    </pci>\n",
          buses[tree] + 1, tree, tree, tree + 5);
    }
    text += "  </cpu>\n";
  }
  return text + "</system>\n";
}

/// Two POWER9, four V100 with NVLink to their package, and a NIC.
inline std::string ac922_like_xml() {
  return R"(<system version="1">
  <cpu host_hash="0x1" numaid="0" affinity="0000ffff" arch="ppc64">
    <pci busid="0004:04:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="8">
      <gpu dev="0" sm="70" rank="0" gdr="1">
        <nvlink target="0004:05:00.0" count="3" tclass="0x030200"/>
        <nvlink target="0006:00:00.0" count="3" tclass="0x068001"/>
      </gpu>
    </pci>
    <pci busid="0004:05:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="8">
      <gpu dev="1" sm="70" rank="1" gdr="1">
        <nvlink target="0004:04:00.0" count="3" tclass="0x030200"/>
        <nvlink target="0006:00:00.1" count="3" tclass="0x068001"/>
      </gpu>
    </pci>
    <pci busid="0003:01:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="8">
      <nic>
        <net name="mlx5_0" dev="0" latency="0.000000" speed="100000" port="1" maxconn="262144" gdr="1"/>
      </nic>
    </pci>
  </cpu>
  <cpu host_hash="0x1" numaid="8" affinity="ffff0000" arch="ppc64">
    <pci busid="0035:03:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="8">
      <gpu dev="2" sm="70" rank="2" gdr="1">
        <nvlink target="0035:04:00.0" count="3" tclass="0x030200"/>
        <nvlink target="0007:00:00.0" count="3" tclass="0x068001"/>
      </gpu>
    </pci>
    <pci busid="0035:04:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="8">
      <gpu dev="3" sm="70" rank="3" gdr="1">
        <nvlink target="0035:03:00.0" count="3" tclass="0x030200"/>
        <nvlink target="0007:00:00.1" count="3" tclass="0x068001"/>
      </gpu>
    </pci>
  </cpu>
</system>
)";
}

/// Two H100 on two NVSwitches, a NIC with two ports, a virtual NIC of unknown speed, and a fused NIC.
inline std::string nvswitch_xml() {
  return R"(<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:10:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="90" rank="1" gdr="1">
        <nvlink target="0000:05:00.0" count="9" tclass="0x068000"/>
        <nvlink target="0000:06:00.0" count="9" tclass="0x068000"/>
      </gpu>
    </pci>
    <pci busid="0000:20:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="90" rank="0" gdr="1">
        <nvlink target="0000:05:00.0" count="9" tclass="0x068000"/>
        <nvlink target="0000:06:00.0" count="9" tclass="0x068000"/>
      </gpu>
    </pci>
    <pci busid="0000:30:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
      <nic>
        <net name="mlx5_0" dev="0" speed="200000" port="1"/>
        <net name="mlx5_1" dev="1" speed="200000" port="2"/>
        <net name="part" dev="7" net="0" speed="200000"/>
        <net name="unused" speed="200000"/>
      </nic>
    </pci>
    <pci busid="0000:05:00.0" class="0x068000" link_speed="" link_width="0"/>
    <nic>
      <net name="eth0" dev="2" speed="-1" port="0"/>
    </nic>
  </cpu>
</system>
)";
}

inline std::string without_nets(const std::string& text) {
  return std::regex_replace(text, std::regex("<net [^>]*/>"), "");
}

}  // namespace ddl::topology
