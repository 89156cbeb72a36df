/// Sets that replace sets, as the commit tests see them. Files say which set they belong to, so that a mix shows.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace shardwright::kill_test {

using Files = std::vector<std::pair<std::string, std::string>>;

/// A shard or single file: its set's name, over and over.
inline std::string weights(const std::string& label) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += label + " ";
  return text;
}
/// An index: the set's name and its files.
inline std::string index_of(const std::string& label, const std::vector<std::string>& shards) {
  std::string text = "index " + label;
  for (const std::string& shard : shards) text += " " + shard;
  return text;
}

struct Scenario {
  std::string name;
  Files old_files;  ///< in "set/"; empty: there is no such directory
  Files new_files;  ///< in the order of publication
  std::vector<std::string> stale, entries;
  std::vector<std::string> first, second;  ///< where two loaders look, in order of preference
  bool window = false;                     ///< loaders may find nothing for a while
  bool links = false;  ///< old files are links to files elsewhere, the first one on another file system if there is one
};

/// A sharded set; `of` is in the shards' names when they carry it.
inline Files sharded(const std::string& label, int count, const std::string& of, const std::string& index) {
  Files files;
  std::vector<std::string> names;
  for (int i = 1; i <= count; ++i) {
    names.push_back("shard-" + std::to_string(i) + of);
    files.emplace_back(names.back(), weights(label));
  }
  files.emplace_back(index, index_of(label, names));
  return files;
}

inline std::vector<Scenario> scenarios() {
  const std::string index = "model.index", single = "model";
  const std::vector<std::string> hub = {index, single}, transformers = {single, index};
  std::vector<Scenario> all;
  all.push_back({"new_directory", {}, sharded("new", 2, "-of-2", index), {}, {}, hub, transformers, true});
  all.push_back({"same_names",
                 sharded("old", 2, "-of-2", index),
                 sharded("new", 2, "-of-2", index),
                 {},
                 {index},
                 hub,
                 transformers,
                 true});
  all.push_back({"other_count",
                 sharded("old", 3, "-of-3", index),
                 sharded("new", 2, "-of-2", index),
                 {"shard-1-of-3", "shard-2-of-3", "shard-3-of-3"},
                 {index},
                 hub,
                 transformers});
  all.push_back({"keras_fewer",
                 sharded("old", 3, "", index),
                 sharded("new", 2, "", index),
                 {"shard-3"},
                 {index},
                 hub,
                 hub,
                 true});
  all.push_back({"single_to_sharded",
                 {{single, weights("old")}},
                 sharded("new", 2, "-of-2", index),
                 {single},
                 {single},
                 hub,
                 transformers});
  all.push_back({"sharded_to_single",
                 sharded("old", 2, "-of-2", index),
                 {{single, weights("new")}},
                 {index, "shard-1-of-2", "shard-2-of-2"},
                 {index},
                 hub,
                 transformers});
  all.push_back({"single", {{single, weights("old")}}, {{single, weights("new")}}, {}, {single}, hub, transformers});
  Files with_side = sharded("new", 1, "-of-1", index);
  with_side.insert(with_side.begin(), {"sub/dir/side", "belongs to it"});
  all.push_back({"side_files", {{single, weights("old")}}, with_side, {single}, {single}, hub, transformers});
  all.push_back({"links",
                 sharded("old", 2, "-of-2", index),
                 sharded("new", 2, "-of-2", index),
                 {},
                 {index},
                 hub,
                 transformers,
                 true,
                 true});
  return all;
}

}  // namespace shardwright::kill_test
