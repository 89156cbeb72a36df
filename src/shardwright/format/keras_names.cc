#include "shardwright/format/keras_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

namespace shardwright {
namespace {

// Below the depth to which our reader follows groups.
constexpr std::ptrdiff_t kMaxComponents = 200;

/// Datasets placed so far and the groups above them.
class Tree {
 public:
  /// False when something else is in the way; then nothing is placed.
  bool place(const std::string& path) {
    if (datasets_.contains(path) || groups_.contains(path)) return false;
    for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1))
      if (datasets_.contains(path.substr(0, slash))) return false;
    // Innermost first: once a group is known, so are those above it.
    for (auto group = parent_path(path); !group.empty() && groups_.emplace(group).second; group = parent_path(group)) {
    }
    datasets_.insert(path);
    return true;
  }

 private:
  std::unordered_set<std::string> datasets_, groups_;
};

std::string flat(std::string_view name) {
  std::string out;
  for (char c : escape_for_hdf5(name)) c == '/' ? out += "%2F" : out += c;
  return out;
}

}  // namespace

bool is_decimal(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_vars_group(std::string_view path) { return path == "vars" || path.ends_with("/vars"); }

std::string_view vars_group_of(std::string_view path) {
  for (auto group = parent_path(path); !group.empty(); group = parent_path(group))
    if (is_vars_group(group)) return group;
  return {};
}

std::string_view parent_path(std::string_view path) {
  auto slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

bool is_keras_path(std::string_view name) {
  return !vars_group_of(name).empty() && escape_for_hdf5(name) == name &&
         std::count(name.begin(), name.end(), '/') < kMaxComponents;
}

std::string escape_for_hdf5(std::string_view name) {
  std::string out;
  size_t start = 0;
  while (true) {
    size_t end = std::min(name.find('/', start), name.size());
    auto component = name.substr(start, end - start);
    if (component.empty()) {
      out += '%';
    } else if (component == ".") {
      out += "%2E";
    } else {
      for (char c : component) c == '\0' ? out += "%00" : out += c;
    }
    if (end == name.size()) return out;
    out += '/';
    start = end + 1;
  }
}

std::vector<std::string> keras_paths(std::span<const std::string_view> names) {
  Tree tree;
  std::vector<std::string> paths(names.size());
  for (size_t i = 0; i < names.size(); ++i)
    if (is_keras_path(names[i]))
      if (auto path = std::string(names[i]); tree.place(path)) paths[i] = std::move(path);
  for (size_t i = 0; i < names.size(); ++i) {
    if (!paths[i].empty()) continue;
    auto path = escape_for_hdf5(names[i]) + "/vars/0";
    bool deep = std::count(path.begin(), path.end(), '/') >= kMaxComponents;
    for (int number = 0; deep || !tree.place(path); ++number) {
      deep = false;
      path = flat(names[i]) + (number == 0 ? "" : fmt::format("%{}", number)) + "/vars/0";
    }
    paths[i] = std::move(path);
  }
  return paths;
}

}  // namespace shardwright
