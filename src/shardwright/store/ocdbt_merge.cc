// Databases of several processes as one, by reference.
#include <algorithm>

#include "shardwright/base/text.h"
#include "shardwright/store/ocdbt.h"
#include "shardwright/store/ocdbt_write.h"

namespace shardwright {
namespace {

struct Row {
  std::string key, value;  ///< value: that of a key whose `is_inline` is set
  bool is_inline;
  size_t child;
  std::string file;  ///< below the merged database's directory
  uint64_t offset, length;
};

/// The file as the tree names it: the child's directory, and the rest.
OcdbtFile file_of(const Row& row, std::span<const std::string> children) {
  const std::string& base = children[row.child];
  return {base, row.file.substr(base.size())};
}

}  // namespace

Status merge_ocdbt(Store& base, std::string_view directory, std::span<const std::string> children,
                   OcdbtTreeBuilder& builder) {
  std::vector<Row> rows;
  for (size_t child = 0; child < children.size(); ++child) {
    SHARDWRIGHT_ASSIGN(auto database, OcdbtDatabase::open(base, std::string(directory) + children[child]));
    SHARDWRIGHT_TRY(database->for_each([&](const OcdbtValue& value) -> Status {
      rows.push_back({std::string(value.key), std::string(text_of(value.inline_value)), value.is_inline, child,
                      value.is_inline ? "" : std::string(value.file.substr(directory.size())), value.offset,
                      value.length});
      return {};
    }));
  }
  std::ranges::stable_sort(rows, {}, &Row::key);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    if (i > 0 && rows[i - 1].key == row.key)
      return fail(Code::kCorrupt, "two databases have one key, so they are not parts of one")
          .at_path(base.describe(std::string(directory) + children[row.child]))
          .with_found(json_quote(row.key) + ", also in " + children[rows[i - 1].child]);
    SHARDWRIGHT_TRY(row.is_inline ? builder.add(row.key, view_of(row.value))
                                  : builder.add(row.key, file_of(row, children), row.offset, row.length));
  }
  return {};
}

}  // namespace shardwright
