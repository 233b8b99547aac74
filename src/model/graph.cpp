#include "model/graph.hpp"

#include "base/error.hpp"

namespace ztrain::model {

std::size_t Graph::node_index(const std::string& name) const {
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].name == name) return i;
  fail("the model has no op named '{}'", name);
}

}  // namespace ztrain::model
