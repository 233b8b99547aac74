#include "config/fields/fields_rows.hpp"

namespace ztrain::config::rows {

std::vector<Field> sparse_attention() {
  const Legal count = between(0, 1 << 20);
  return {
      numeric(
          {KEY_OF(sparse_attention, mode), R"("none")", "",
           one_of({"none", "fixed", "variable", "bigbird", "bslongformer", "file"}),
           "Which blocks of keys a block of queries attends to: always its own, never a later one. fixed: "
           "those of its window of num_local_blocks, and the last num_global_blocks of each window before. "
           "variable: those of its window, the first num_global_blocks of the sequence, and random blocks. "
           "bigbird: half of num_sliding_window_blocks before it, the first num_global_blocks, and random "
           "blocks. bslongformer: as bigbird without random blocks. file: those of sparse_attention.layout. "
           "none: all blocks."}),
      numeric({KEY_OF(sparse_attention, block), "64", "tokens", multiple_of(64, 1 << 20),
               "Tokens of a block. It divides data.sequence."}),
      numeric({KEY_OF(sparse_attention, num_local_blocks), "4", "", between(1, 1 << 20),
               "Blocks of a window of fixed and variable."}),
      numeric({KEY_OF(sparse_attention, num_global_blocks), "1", "", count,
               "fixed: blocks at the end of each window, to which all later windows attend. Other modes: "
               "blocks at the beginning of the sequence, to which all queries attend."}),
      numeric(
          {KEY_OF(sparse_attention, num_sliding_window_blocks), "3", "", between(1, 1 << 20),
           "Width of the window of bigbird and bslongformer, which is centred on the query's block. Later "
           "blocks are left out of it: with 3 a query attends to its own block and to one before."}),
      numeric({KEY_OF(sparse_attention, num_random_blocks), "0", "", count,
               "Blocks that variable and bigbird draw for each block of queries, among all blocks up to its "
               "own. Some may be attended to anyway."}),
      numeric({KEY_OF(sparse_attention, seed), "0", "", between(0, 1e15), "Seed of the random blocks."}),
      numeric(read_path(
          {KEY_OF(sparse_attention, layout), R"("")", "", any(),
           "File of mode \"file\": a line for each block of queries, with a 1 for each block of keys "
           "that it attends to and a 0 for each other. Lines may go beyond data.sequence: ztrain generate "
           "reads them."})),
  };
}

}  // namespace ztrain::config::rows
