/// For tests only: temporary directories, files, short spellings of reads and writes.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shardwright/store/store.h"

namespace shardwright::testing_support {

/// A fresh directory, removed at the end.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(const std::string& below = std::filesystem::temp_directory_path()) {
    std::string name = below + "/shardwright-test-XXXXXX";
    path_ = ::mkdtemp(name.data()) != nullptr ? std::filesystem::canonical(name).string() : "";
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string at(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline void write_file(const std::string& path, std::string_view text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}
inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Every file, directory and link below `root`, relative, sorted: "a", "sub/".
inline std::vector<std::string> tree(const std::string& root) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    bool directory = entry.is_directory() && !entry.is_symlink();
    names.push_back(
        std::filesystem::relative(entry.path().parent_path(), root).string() == "."
            ? entry.path().filename().string()
            : (std::filesystem::relative(entry.path().parent_path(), root) / entry.path().filename()).string());
    if (directory) names.back() += "/";
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline std::string text_at(Store& store, std::string_view key) {
  auto bytes = read_object(store, key, GiB);
  return bytes.ok() ? std::string(text_of(*bytes)) : "error: " + bytes.error().text();
}

/// Bytes that differ from place to place.
inline std::string pattern(size_t size, unsigned seed = 1) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>((i * 131 + i / 251 + seed * 17) & 0xff);
  return text;
}

using Files = std::vector<std::pair<std::string, std::string>>;

/// Creates, writes and finishes; in one write.
inline Status stage(Transaction& transaction, std::string_view key, std::string_view text) {
  SHARDWRIGHT_ASSIGN(auto writer, transaction.create(key, text.size()));
  WriteOp op{0, view_of(text)};
  SHARDWRIGHT_TRY(writer->write({&op, 1}));
  return writer->finish(text.size());
}

/// The whole way: begin, stage every file in order, commit. The last file is the entry point.
inline Status put(Store& store, std::string_view under, const Files& files, std::vector<std::string> stale = {},
                  std::vector<std::string> entries = {}) {
  SHARDWRIGHT_ASSIGN(auto transaction, store.begin(under));
  Publication publication{{}, std::move(stale), std::move(entries)};
  for (const auto& [key, text] : files) {
    SHARDWRIGHT_TRY(stage(*transaction, key, text));
    publication.keys.push_back(key);
  }
  return transaction->commit(publication);
}

#define EXPECT_OK(expression)                                              \
  do {                                                                     \
    auto&& expect_ok_result = (expression);                                \
    EXPECT_TRUE(expect_ok_result.ok()) << expect_ok_result.error().text(); \
  } while (false)
#define ASSERT_OK(expression)                                              \
  do {                                                                     \
    auto&& assert_ok_result = (expression);                                \
    ASSERT_TRUE(assert_ok_result.ok()) << assert_ok_result.error().text(); \
  } while (false)
#define EXPECT_CODE(expression, wanted)                                                      \
  do {                                                                                       \
    auto&& expect_code_result = (expression);                                                \
    ASSERT_FALSE(expect_code_result.ok());                                                   \
    EXPECT_EQ(expect_code_result.error().code, wanted) << expect_code_result.error().text(); \
  } while (false)

}  // namespace shardwright::testing_support
