// What the deck says of the machine, and the presets of machines.
#include <gtest/gtest.h>

#include "config/fields/presets.hpp"
#include "config/text/print.hpp"
#include "tests/unit/config/config_deck.hpp"

namespace ztrain::config::config_cluster_test {
namespace {

TEST(ClusterPresets, SetTheFiguresAndYieldToTheDeck) {
  const Deck d = deck_of("[cluster]\npreset = \"h100-80gb\"\ninter_node_bandwidth = 25\n");
  EXPECT_EQ(d.cluster.ranks_per_node, 8);
  EXPECT_EQ(d.cluster.device_memory, 80);
  EXPECT_EQ(d.cluster.host_memory, 2000);
  EXPECT_EQ(d.cluster.outside_memory, 3);
  EXPECT_EQ(d.cluster.peak_tflops, 989);
  EXPECT_EQ(d.cluster.compute_efficiency, 0.7);
  EXPECT_EQ(d.cluster.memory_bandwidth, 3350);
  EXPECT_EQ(d.cluster.memory_efficiency, 0.85);
  EXPECT_EQ(d.cluster.intra_node_bandwidth, 450);
  EXPECT_EQ(d.cluster.inter_node_bandwidth, 25);
  EXPECT_EQ(source_of(d, "cluster.inter_node_bandwidth"), "input.toml:9 (over preset h100-80gb)");
  EXPECT_EQ(source_of(d, "cluster.memory_bandwidth"), "preset h100-80gb");
  const Cluster a100 = deck_of("", {"--cluster.preset=a100-80gb"}).cluster;
  EXPECT_EQ(a100.peak_tflops, 312);
  EXPECT_EQ(a100.memory_bandwidth, 2039);
  EXPECT_EQ(a100.intra_node_bandwidth, 300);
  EXPECT_EQ(a100.inter_node_bandwidth, 25);
  EXPECT_EQ(a100.host_memory, 1000);
}

TEST(ClusterPresets, AllAreLegalAndWhole) {
  for (const auto& name : cluster_preset_names()) {
    const Cluster c = deck_of("", {"--cluster.preset=" + name}).cluster;
    EXPECT_EQ(c.preset, name);
    EXPECT_EQ(c.device_memory > 0, name != "custom") << name;
    EXPECT_EQ(c.peak_tflops > 0, name != "custom") << name;
    EXPECT_GE(c.intra_node_bandwidth, c.inter_node_bandwidth) << name;
    EXPECT_LE(c.device_memory, c.host_memory) << name;
  }
  EXPECT_EQ(deck_error("[cluster]\npreset = \"h100\"\n"),
            "input.toml:8: cluster.preset = \"h100\" is not legal: expected one of custom, h100-80gb, "
            "h200-141gb, a100-80gb, a100-40gb, mi300x, h100-pcie-80gb, b200-180gb; nearest legal: h100-80gb");
}

TEST(DevicePeaks, AreDenseAndFoundByWhatTheDriverSays) {
  const auto peak = [](const char* device, Arithmetic a) { return device_peak(device, a); };
  EXPECT_EQ(peak("NVIDIA H100 80GB HBM3", Arithmetic::bits16), 989);
  EXPECT_EQ(peak("NVIDIA H100 80GB HBM3", Arithmetic::fp8), 1979);
  EXPECT_EQ(peak("NVIDIA H100 80GB HBM3", Arithmetic::tf32), 495);
  EXPECT_EQ(peak("NVIDIA H100 80GB HBM3", Arithmetic::fp32), 67);
  EXPECT_EQ(peak("NVIDIA H100 80GB HBM3", Arithmetic::fp64), 0) << "not in the table";
  EXPECT_EQ(peak("NVIDIA H200", Arithmetic::bits16), 989);
  EXPECT_EQ(peak("NVIDIA H200 NVL", Arithmetic::bits16), 0) << "slower, and not in the table";
  EXPECT_EQ(peak("NVIDIA H100 PCIe", Arithmetic::bits16), 756);
  EXPECT_EQ(peak("NVIDIA A100-SXM4-80GB", Arithmetic::bits16), 312);
  EXPECT_EQ(peak("NVIDIA A100 80GB PCIe", Arithmetic::tf32), 156);
  EXPECT_EQ(peak("NVIDIA A100-PCIE-40GB", Arithmetic::fp8), 0) << "it has no such products";
  EXPECT_EQ(peak("NVIDIA B200", Arithmetic::bits16), 2250);
  EXPECT_EQ(peak("AMD EPYC 9V74", Arithmetic::bits16), 0);
}

TEST(ClusterPresets, PeaksAreThoseOfTheParametersDType) {
  const Deck d = deck_of("[cluster]\npreset = \"a100-40gb\"\n[precision]\npreset = \"fp64\"\n");
  EXPECT_EQ(d.cluster.peak_tflops, 0);
  EXPECT_EQ(source_of(d, "cluster.peak_tflops"), "preset a100-40gb knows no peak in fp64");
  EXPECT_EQ(d.cluster.memory_bandwidth, 1555);
  const auto fp32 = [](const std::string& name) {
    return deck_of("", {"--cluster.preset=" + name, "--precision.preset=fp32"}).cluster.peak_tflops;
  };
  EXPECT_EQ(fp32("h100-80gb"), 67);
  EXPECT_EQ(fp32("h200-141gb"), 67);
  EXPECT_EQ(fp32("a100-40gb"), 19.5);
  EXPECT_EQ(fp32("mi300x"), 163.4);
  EXPECT_EQ(cluster_peak("custom", DType::bf16), 0);
  const std::string given = "[cluster]\npreset = \"a100-40gb\"\npeak_tflops = 9.7\n";
  EXPECT_EQ(deck_of(given, {"--precision.preset=fp32"}).cluster.peak_tflops, 9.7);
  EXPECT_EQ(deck_of("", {"--cluster.preset=mi300x", "--precision.preset=deepspeed-fp16"}).cluster.peak_tflops,
            1307);
  const Deck again = parse_deck(resolved_toml(d), "resolved.toml");
  EXPECT_EQ(again.cluster.peak_tflops, 0);
}

TEST(ClusterPresets, TheNodesOfARunAreThoseLaunched) {
  const std::string hybrid = "[sharding]\nstrategy = \"HYBRID_SHARD\"\n[cluster]\npreset = \"h100-80gb\"\n";
  EXPECT_EQ(on_ranks(hybrid, 8, 4).mesh.shard, 4);
  EXPECT_EQ(on_ranks(hybrid + "ranks_per_node = 2\n", 8, 4).mesh.shard, 2);
}

TEST(Offload, TakesTheWordsOfOthers) {
  EXPECT_EQ(deck_of("[offload]\noptimizer = \"host\"\n").offload.optimizer.to, "cpu");
  EXPECT_EQ(
      deck_of("", {"--offload.parameters=nvme", "--offload.nvme_path=d", "--offload.parameters_fraction=0.4"})
          .offload.parameters.fraction,
      0.4);
  EXPECT_EQ(deck_error("", {"--offload.optimizer=ssd"}),
            "command line: offload.optimizer = \"ssd\" is not legal: expected one of none, cpu, nvme");
}

TEST(Summary, SaysWhatIsSavedWhen) {
  const auto said = [](const std::string& lines) {
    return saving_summary(deck_of("[checkpoint]\n" + lines), 2e9);
  };
  EXPECT_EQ(said("interval = -1\n"), "none (checkpoint.interval = -1)");
  EXPECT_EQ(said(""), "2.00 GB, at the end alone (checkpoint.interval = 0): after a crash all starts anew");
  EXPECT_EQ(said("interval = 5\n"),
            "2.00 GB each, every 5 steps and at the end; room for 3 (checkpoint.keep = 2)");
  EXPECT_EQ(said("interval = 5\nkeep = 0\n"),
            "2.00 GB each, every 5 steps and at the end; all are kept (checkpoint.keep = 0)");
}

TEST(Summary, NamesWhatTheOptimizerKeeps) {
  const auto moments = [](const std::vector<std::string>& overrides) {
    const std::string text = precision_summary(deck_of("", overrides));
    return text.substr(text.find("moments"));
  };
  EXPECT_EQ(moments({"--precision.preset=bf16"}), "moments fp32");
  EXPECT_EQ(moments({"--precision.preset=bf16", "--optimizer.name=adamw_8bit"}),
            "moments uint8 + fp32 per 256");
  EXPECT_EQ(moments({"--optimizer.name=sgd", "--optimizer.momentum=0"}), "moments none");
}

TEST(Cluster, OutsideMemoryIsAPartOfTheDevices) {
  EXPECT_EQ(
      deck_error("[cluster]\ndevice_memory = 40\noutside_memory = 41\n"),
      "input.toml:9: cluster.outside_memory (41 GB) leaves nothing of cluster.device_memory (40 GB); it is "
      "a part of it");
  EXPECT_EQ(deck_error("[cluster]\noutside_memory = 41\n"), "no error") << "the device's memory is unknown";
  EXPECT_EQ(
      deck_error("[cluster]\ncompute_efficiency = 0\n"),
      "input.toml:8: cluster.compute_efficiency = 0 is not legal: expected a number above 0, at most 1");
}

}  // namespace
}  // namespace ztrain::config::config_cluster_test
