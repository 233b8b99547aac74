#include "config/fields/fields_rows.hpp"

namespace ztrain::config::rows {
namespace {

/// Adds PyTorch's and DeepSpeed's words for tiers.
Legal tier() {
  return also({{"host", "cpu"}, {"true", "cpu"}, {"false", "none"}, {"device", "none"}, {"disk", "nvme"}},
              one_of({"none", "cpu", "nvme"}));
}

#define HOME(state, doc) free({"offload." #state, MEMBER_OF(offload.state.to), R"("none")", "", tier(), doc})
#define FRACTION(state, of_what)                                                            \
  free({"offload." #state "_fraction", MEMBER_OF(offload.state.fraction), "1", "", share(), \
        "Of " of_what ", the share that offload." #state " sends away (DeepSpeed's Twin-Flow ratio)."})

}  // namespace

std::vector<Field> offload() {
  return {
      HOME(
          parameters,
          "Where parameters are between their uses: none: on the device. cpu: in the host's memory. nvme: in "
          "files of offload.nvme_path. A unit is fetched for each of its gathers; where parameters are "
          "whole, its fetch takes the place of one. Units that stay whole (sharding.persistence_threshold) "
          "stay on the device. ZeRO-3 Offload and FSDP's CPUOffload send parameters, gradients and optimizer "
          "states."),
      FRACTION(parameters, "the units' elements, by whole units spread evenly over the model"),
      HOME(gradients,
           "Where gradients are from their reduction to the optimizer's step, and between micro-batches."),
      FRACTION(gradients, "the units' gradients"),
      HOME(master, "Where master weights are, if they are wider than the parameters; else there are none."),
      FRACTION(master, "the units' master weights"),
      HOME(optimizer, "Where the optimizer's states are, such as Adam's moments."),
      FRACTION(optimizer, "the units' states"),
      HOME(activations,
           "Where what a block's forward keeps for its backward is in between. With "
           "recompute.mode it is what is kept instead."),
      FRACTION(activations, "the blocks"),
      free({KEY_OF(offload, optimizer_on), R"("auto")", "",
            also({{"cpu", "host"}, {"default", "auto"}}, one_of({"auto", "host", "device"})),
            "Where the optimizer steps. auto: on the host what has its states or master weights there or on "
            "NVMe (ZeRO-Offload), else on the device. host: also what has them on the device. device: they "
            "are fetched for it."}),
      free(
          {KEY_OF(offload, optimizer_ahead), "false", "", any(),
           "Whether the host steps a unit as soon as its gradient is there, while backward goes on, as if "
           "nothing were clipped (SuperOffload's speculation). If the norm then clips, such steps are undone "
           "and taken again with the clipped gradients; if the step is skipped, they are undone. No bit "
           "differs from a run without the key. It takes up to 18 bytes a parameter more of the host's "
           "memory "
           "with AdamW and fp32 gradients."}),
      free({KEY_OF(offload, optimizer_threads), "0", "threads", between(0, 1024),
            "Of a rank, that share what the optimizer steps on the host. They run on the cores that the "
            "launcher gave the rank. 0: as many as these are, or where it gave all to all of them, a rank's "
            "share of the node's; of CPU ranks one."}),
      // These keys say how NVMe is read and written.
      free(written_path({KEY_OF(offload, nvme_path), "[]", "", any(),
                         "Folders on drives of the node, for what is sent to nvme: a rank's bytes are "
                         "striped over all of them. Each rank has files of its own there, without names: "
                         "nothing is left behind when a run ends, however it ends."})),
      free({KEY_OF(offload, queue_depth), "32", "requests", between(1, 4096),
            "Reads and writes that a rank has under way at once."}),
      free({KEY_OF(offload, nvme_block_size), "1_048_576", "bytes", multiple_of(4096, 1 << 30),
            "Of one read or write at most, and of a stripe."}),
      free({KEY_OF(offload, threads), "8", "threads", between(1, 1024),
            "That read and write where the system does not allow io_uring."}),
      free({KEY_OF(offload, checksums), "false", "", any(),
            "Whether what is read from NVMe is compared with what was written there."}),
  };
}

}  // namespace ztrain::config::rows
