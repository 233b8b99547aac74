#include "runtime/session/transport.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <string_view>

#include "runtime/session/mpi_check.hpp"
#include "runtime/session/session.hpp"

namespace ztrain::runtime {
namespace {

namespace fs = std::filesystem;

/// Variables with which sites choose a faster network, as they and the makers publish them.
struct Advice {
  NetworkKind kind;
  std::string_view library, text;
};
constexpr std::array advices{
    Advice{NetworkKind::slingshot, "NCCL",
           "the plugin aws-ofi-nccl in LD_LIBRARY_PATH, NCCL_NET=\"AWS Libfabric\", NCCL_NET_GDR_LEVEL=PHB, "
           "NCCL_CROSS_NIC=1, FI_MR_CACHE_MONITOR=userfaultfd, FI_CXI_DISABLE_HOST_REGISTER=1, "
           "FI_CXI_DEFAULT_CQ_SIZE=131072, FI_CXI_RDZV_PROTO=alt_read"},
    Advice{NetworkKind::slingshot, "MPI",
           "Cray MPICH, or an MPI built with libfabric and FI_PROVIDER=cxi; for Open MPI also "
           "OMPI_MCA_pml=cm and OMPI_MCA_mtl=ofi"},
    Advice{NetworkKind::infiniband, "NCCL",
           "NCCL_IB_HCA=mlx5 with libibverbs installed, and neither NCCL_NET=Socket nor NCCL_IB_DISABLE=1"},
    Advice{
        NetworkKind::infiniband, "MPI",
        "an MPI built with UCX and UCX_NET_DEVICES=mlx5_0:1, with UCX_TLS unset or UCX_TLS=rc,sm,self; for "
        "Open MPI also OMPI_MCA_pml=ucx"},
};

std::string value(const TransportFacts& facts, std::string_view name) {
  return facts.environment(name).value_or("");
}

/// Returns the variables that are set, as in " (FI_PROVIDER=cxi)"; "" if none is.
std::string settings(const TransportFacts& facts, std::initializer_list<std::string_view> names) {
  std::vector<std::string> set;
  for (const std::string_view name : names)
    if (const std::string text = value(facts, name); !text.empty())
      set.push_back(fmt::format("{}={}", name, text));
  return set.empty() ? "" : fmt::format(" ({})", fmt::join(set, ", "));
}

/// Returns the open components of a framework of Open MPI, without its name.
std::vector<std::string> open_components(const TransportFacts& facts, const std::string& framework) {
  constexpr std::array not_for_data{"base", "self"};
  std::vector<std::string> found;
  for (const std::string& component : facts.components)
    if (component.starts_with(framework + "_"))
      if (const std::string name = component.substr(framework.size() + 1);
          std::ranges::count(not_for_data, name) == 0)
        found.push_back(name);
  return found;
}

/// Names the library's layer for networks. UCX and libfabric choose a device themselves; if they have opened
/// no device file, they can only use TCP between nodes.
Transport over_layer(const TransportFacts& facts, const std::string& name) {
  const std::string set = name.find("ucx") != std::string::npos
                              ? settings(facts, {"UCX_TLS", "UCX_NET_DEVICES"})
                              : settings(facts, {"FI_PROVIDER", "MPIR_CVAR_OFI_USE_PROVIDER",
                                                 "OMPI_MCA_mtl_ofi_provider_include"});
  if (facts.opened.empty())
    return {name + set + ", over TCP between nodes: it has no device of a network open", true};
  return {fmt::format("{}{} with {} open", name, set, fmt::join(facts.opened, " ")), false};
}

Transport of_ob1(const TransportFacts& facts) {
  const std::vector<std::string> btls = open_components(facts, "btl");
  constexpr std::array<std::string_view, 6> networks{"openib", "ofi", "uct", "usnic", "portals4", "ugni"};
  const bool other = std::ranges::any_of(
      btls, [&](const std::string& btl) { return std::ranges::count(networks, btl) > 0; });
  return {fmt::format("pml ob1 over btl {}", fmt::join(btls, ", ")), !other};
}

/// Returns the text from `begin` to the end of its line, without spaces in front.
std::string after(const std::string& text, std::string_view begin) {
  std::size_t at = text.find(begin);
  if (at == std::string::npos) return "";
  at = text.find_first_not_of(" \t", at + begin.size());
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

bool is_loaded(const TransportFacts& facts, std::string_view begin) {
  return std::ranges::any_of(facts.libraries,
                             [&](const std::string& library) { return library.starts_with(begin); });
}

bool has(const std::vector<Nic>& nics, NetworkKind kind) {
  return std::ranges::any_of(nics, [&](const Nic& nic) { return nic.kind == kind; });
}

/// Returns the components of Open MPI that have variables of control, which they have while they are open.
std::vector<std::string> components_of_mpi() {
  std::vector<std::string> found;
#ifdef OPEN_MPI
  int provided = 0, count = 0;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) return found;
  if (MPI_T_cvar_get_num(&count) != MPI_SUCCESS) count = 0;
  std::set<std::string> names;
  for (int index = 0; index < count; ++index) {
    std::array<char, 256> name{};
    int length = static_cast<int>(name.size()), no_text = 0, verbosity = 0, binding = 0, scope = 0;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_T_enum values = MPI_T_ENUM_NULL;
    if (MPI_T_cvar_get_info(index, name.data(), &length, &verbosity, &type, &values, nullptr, &no_text,
                            &binding, &scope) != MPI_SUCCESS)
      continue;
    const std::string text = name.data();
    for (const std::string_view framework : {"pml_", "mtl_", "btl_"})
      if (text.starts_with(framework)) names.insert(text.substr(0, text.find('_', framework.size())));
  }
  MPI_T_finalize();
  found.assign(names.begin(), names.end());
#endif
  return found;
}

std::vector<std::string> opened_devices(const fs::path& root) {
  constexpr std::array<std::string_view, 3> devices{"/dev/cxi", "/dev/infiniband/", "/dev/hfi1"};
  std::set<std::string> opened;
  std::error_code error;
  for (fs::directory_iterator entry(root / "proc/self/fd", error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code unknown;
    const std::string target = fs::read_symlink(entry->path(), unknown);
    if (std::ranges::any_of(devices, [&](std::string_view begin) { return target.starts_with(begin); }))
      opened.insert(target);
  }
  return {opened.begin(), opened.end()};
}

std::vector<std::string> loaded_libraries(const fs::path& root) {
  std::set<std::string> loaded;
  std::ifstream maps(root / "proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (const std::size_t slash = line.rfind('/'); slash != std::string::npos)
      loaded.insert(line.substr(slash + 1));
  return {loaded.begin(), loaded.end()};
}

}  // namespace

Transport mpi_transport(const TransportFacts& facts) {
  for (const std::string& pml : open_components(facts, "pml")) {
    if (pml == "ob1") return of_ob1(facts);
    if (pml == "cm")
      return over_layer(facts, fmt::format("pml cm, mtl {}", fmt::join(open_components(facts, "mtl"), ", ")));
    return over_layer(facts, "pml " + pml);
  }
  const std::string device = after(facts.mpi, "MPICH Device:");
  return over_layer(facts, device.empty() ? "a transport that it does not name" : device);
}

Transport nccl_transport(const TransportFacts& facts) {
  const std::string net = value(facts, "NCCL_NET"), provider = value(facts, "FI_PROVIDER");
  const std::string set = settings(facts, {"NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_IB_DISABLE", "FI_PROVIDER"});
  const bool built_in = net == "Socket" || net == "IB";
  for (const std::string& library : facts.libraries)
    if (library.starts_with("libnccl-net") && !built_in)
      return {fmt::format("plugin {}{}", library, set), provider == "tcp" || provider == "sockets"};
  const bool verbs = net != "Socket" && value(facts, "NCCL_IB_DISABLE") != "1" &&
                     has(facts.nics, NetworkKind::infiniband) && is_loaded(facts, "libibverbs.so");
  return {(verbs ? "IB (verbs)" : "TCP sockets") + set, !verbs};
}

std::string tcp_warning(const std::string& library, const Transport& transport,
                        const std::vector<Nic>& nics) {
  if (!transport.tcp) return "";
  for (const Advice& advice : advices) {
    if (advice.library != library || !has(nics, advice.kind)) continue;
    std::vector<std::string> names;
    for (const Nic& nic : nics)
      if (nic.kind == advice.kind) names.push_back(nic.name);
    return fmt::format(
        "{} goes over TCP ({}) past {} ({}): sites set, for example, {}. ztrain sets none of these", library,
        transport.text, advice.kind == NetworkKind::slingshot ? "Slingshot" : "InfiniBand",
        fmt::join(names, " "), advice.text);
  }
  return "";
}

TransportFacts look_at_transports(const fs::path& root) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  check_mpi(MPI_Get_library_version(text, &length), "MPI_Get_library_version");
  return {text,
          components_of_mpi(),
          opened_devices(root),
          loaded_libraries(root),
          nics_of_node(root),
          own_environment()};
}

void load_network_of_nccl(const Environment& environment) {
  const std::string plugin = environment("NCCL_NET_PLUGIN").value_or("");
  for (const std::string& name : {plugin, "libnccl-net-" + plugin + ".so", std::string("libnccl-net.so"),
                                  std::string("libibverbs.so.1")})
    if (!name.empty()) dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
}

NetworkReport report_networks(const Session& session, const fs::path& root, bool nccl) {
  std::string text, warning;
  if (session.local_rank() == 0) {
    const TransportFacts facts = look_at_transports(root);
    const Transport mpi = mpi_transport(facts);
    text = "MPI by " + mpi.text;
    warning = tcp_warning("MPI", mpi, facts.nics);
    if (nccl) {
      const Transport other = nccl_transport(facts);
      text += "; NCCL by " + other.text;
      const std::string more = tcp_warning("NCCL", other, facts.nics);
      warning += (warning.empty() || more.empty() ? "" : "; ") + more;
    }
  }
  return {lines_by_node(texts_of_ranks(session, text)), lines_by_node(texts_of_ranks(session, warning))};
}

}  // namespace ztrain::runtime
