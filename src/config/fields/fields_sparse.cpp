#include "config/fields/fields_rows.hpp"

namespace ztrain::config::rows {

std::vector<Field> sparse_attention() {
  const Legal count = between(0, 1 << 20);
  return {
      numeric(
          {KEY_OF(sparse_attention, mode), R"("none")", "",
           one_of({"none", "fixed", "variable", "bigbird", "bslongformer", "file"}),
           "Which blocks of keys a block of queries attends to: always its own, never one behind it. fixed: "
           "those of its window of num_local_blocks, and the last num_global_blocks of each window before. "
           "variable: those of its window, the first num_global_blocks of the sequence, and "
           "num_random_blocks others. bigbird: half of num_sliding_window_blocks before it, the first "
           "num_global_blocks, and num_random_blocks others. bslongformer: as bigbird without random "
           "blocks. file: those of sparse_attention.layout. none: all blocks."}),
      numeric({KEY_OF(sparse_attention, block), "64", "tokens", multiple_of(64, 1 << 20),
               "Tokens of a block. It divides data.sequence."}),
      numeric({KEY_OF(sparse_attention, num_local_blocks), "4", "", between(1, 1 << 20),
               "Blocks of a window of fixed and variable."}),
      numeric({KEY_OF(sparse_attention, num_global_blocks), "1", "", count,
               "Blocks that all later queries attend to; fixed has as many in each window."}),
      numeric(
          {KEY_OF(sparse_attention, num_sliding_window_blocks), "3", "", between(1, 1 << 20),
           "Blocks of the window of bigbird and bslongformer, whose second half lies behind the query and is "
           "not attended to: 3 is the query's block and the one before it."}),
      numeric({KEY_OF(sparse_attention, num_random_blocks), "0", "", count,
               "Blocks that are drawn for each block of queries of variable and bigbird."}),
      numeric({KEY_OF(sparse_attention, seed), "0", "", between(0, 1e15), "Seed of the random blocks."}),
      numeric(read_path(
          {KEY_OF(sparse_attention, layout), R"("")", "", any(),
           "File of mode \"file\": a line for each block of queries, with a 1 for each block of keys "
           "that it attends to and a 0 for each other."})),
  };
}

}  // namespace ztrain::config::rows
