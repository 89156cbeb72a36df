#include "shardwright/store/ocdbt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "shardwright/base/checksum.h"
#include "shardwright/store/ocdbt_frame.h"
#include "shardwright/store/ocdbt_write.h"
#include "shardwright/store/testing.h"

namespace shardwright {
namespace {

using testing::HasSubstr;
using Values = std::map<std::string, std::string>;

Bytes from_hex(std::string_view text) {
  Bytes out;
  std::string digits;
  for (char c : text)
    if (c != ' ') digits += c;
  for (size_t i = 0; i < digits.size(); i += 2)
    out.push_back(static_cast<std::byte>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return out;
}
std::string hex_of(std::string_view text) {
  std::string out;
  for (unsigned char c : text) out += "0123456789abcdef"[c >> 4], out += "0123456789abcdef"[c & 15];
  return out;
}

/// A database in memory.
struct Database {
  std::unique_ptr<Store> store = open_memory_store();
  void put(const std::map<std::string, Bytes>& files) {
    auto transaction = *store->begin("");
    Publication publication;
    for (const auto& [key, bytes] : files) {
      ASSERT_TRUE(write_object(*transaction, key, bytes).ok());
      publication.keys.push_back(key);
    }
    ASSERT_TRUE(transaction->commit(publication).ok());
  }
};

Result<std::string> text_of_value(Store& store, const OcdbtValue& value) {
  if (value.is_inline) return std::string(text_of(value.inline_value));
  std::string text(value.length, ' ');
  ReadOp op{value.file, value.offset, std::as_writable_bytes(std::span(text))};
  SHARDWRIGHT_TRY(store.read({&op, 1}));
  return text;
}

Result<Values> read_all(Store& store, std::string_view directory = "", const OcdbtOptions& options = {}) {
  SHARDWRIGHT_ASSIGN(auto database, OcdbtDatabase::open(store, directory, options));
  Values out;
  SHARDWRIGHT_TRY(database->for_each([&](const OcdbtValue& value) -> Status {
    SHARDWRIGHT_ASSIGN(out[std::string(value.key)], text_of_value(store, value));
    return {};
  }));
  return out;
}

/// Values over `inline_bytes` go into "d/values".
std::map<std::string, Bytes> make_database(const Values& values, OcdbtConfig config, uint64_t inline_bytes) {
  OcdbtFile nodes{"", "d/nodes"}, data{"", "d/values"};
  OcdbtTreeBuilder builder(config, nodes);
  std::map<std::string, Bytes> files;
  for (const auto& [key, value] : values) {
    if (value.size() <= inline_bytes) {
      EXPECT_TRUE(builder.add(key, view_of(value)).ok());
      continue;
    }
    Bytes& file = files["d/values"];
    EXPECT_TRUE(builder.add(key, data, file.size(), value.size()).ok());
    View bytes = view_of(value);
    file.insert(file.end(), bytes.begin(), bytes.end());
  }
  auto version = builder.finish();
  EXPECT_TRUE(version.ok());
  version->generation = 1;
  files["manifest.ocdbt"] = *make_ocdbt_manifest(config, *version, nodes);
  if (!builder.nodes().empty()) files["d/nodes"] = builder.nodes();
  return files;
}

OcdbtConfig config_of(uint64_t node_bytes, bool zstd) {
  OcdbtConfig config;
  config.max_node_bytes = node_bytes;
  if (zstd) config.zstd_level = 0;
  return config;
}

/// From TensorStore, compression off: three generations, the first one empty.
Bytes golden_manifest() {
  std::string files = hex_of("d/1ef0fa20dc1c3f0307116782d1d70716") + hex_of("e9ca1fa1b9b7f8cbd1998be6e53add51");
  Bytes bytes = from_hex(
      "0cdb3a2a bb00000000000000 00 00 000102030405060708090a0b0c0d0e0f 00 64 80808004 04 00"
      "03 00 02 00 22 20 00 00 00" +
      files +
      "03 010203 000000 000102 ffffffffffffffffff01 00 c801 ffffffffffffffffff01 22 4e 000102 00224e 0000c801"
      "0000000000000000 0000000000000000 0000000000000000 00");
  append_le(bytes, crc32c(bytes));
  return bytes;
}

TEST(Ocdbt, ReadsTheManifestOfTheReference) {
  auto manifest = parse_ocdbt_manifest(golden_manifest());
  ASSERT_TRUE(manifest.ok()) << manifest.error().text();
  EXPECT_EQ(manifest->config.max_inline_bytes, 100u);
  EXPECT_EQ(manifest->config.max_node_bytes, 8u << 20);
  EXPECT_FALSE(manifest->config.zstd_level);
  ASSERT_EQ(manifest->files.size(), 3u);
  EXPECT_EQ(manifest->files[0], (OcdbtFile{"", ""}));
  EXPECT_EQ(manifest->files[2], (OcdbtFile{"", "d/e9ca1fa1b9b7f8cbd1998be6e53add51"}));
  ASSERT_EQ(manifest->versions.size(), 3u);
  EXPECT_FALSE(manifest->versions[0].root);
  EXPECT_EQ(*manifest->versions[2].root, (OcdbtRange{2, 200, 78}));
  EXPECT_EQ(manifest->versions[2].statistics, (OcdbtStatistics{2, 78, 200}));
}

TEST(Ocdbt, ReadsTheLeafOfTheReference) {
  Bytes leaf = from_hex("0cdb20de 4e00000000000000 00 00 00 01 22 00" + hex_of("d/e9ca1fa1b9b7f8cbd1998be6e53add51") +
                        "02 04 05 01" + hex_of("key/a") + hex_of("b") + "05 c801 00 01 00 00" + hex_of("hello"));
  append_le(leaf, crc32c(leaf));
  EXPECT_EQ(leaf.size(), 0x4eu);
  EXPECT_EQ(hex_of(text_of(View(leaf).last(4))), "c6a09c58");
  auto node = parse_ocdbt_node(leaf, "base/");
  ASSERT_TRUE(node.ok()) << node.error().text();
  ASSERT_EQ(node->entries().size(), 2u);
  EXPECT_EQ(node->key(node->entries()[1]), "key/b");
  EXPECT_EQ(text_of(node->inline_value(node->entries()[0])), "hello");
  EXPECT_EQ(node->files()[0], (OcdbtFile{"base/", "d/e9ca1fa1b9b7f8cbd1998be6e53add51"}));
  EXPECT_EQ(node->entries()[1].range, (OcdbtRange{0, 0, 200}));
  // And our own makes the same bytes of it.
  OcdbtTreeBuilder builder(config_of(8 << 20, false), {"", "d/x"});
  ASSERT_TRUE(builder.add("key/a", view_of("hello")).ok());
  ASSERT_TRUE(builder.add("key/b", {"", "d/e9ca1fa1b9b7f8cbd1998be6e53add51"}, 0, 200).ok());
  ASSERT_TRUE(builder.finish().ok());
  EXPECT_EQ(builder.nodes(), leaf);
}

Values random_values(std::mt19937_64& random, size_t count) {
  Values values;
  while (values.size() < count) {
    std::string key, value;
    for (size_t i = random() % 12; i-- > 0;) key += "ab/."[random() % 4];
    if (random() % 3 == 0) key += static_cast<char>(random());
    for (size_t i = random() % 40; i-- > 0;) value += static_cast<char>(random());
    values[key] = value;
  }
  return values;
}

TEST(Ocdbt, WhatIsWrittenIsReadHoweverItIsCut) {
  auto seed = std::random_device()();
  std::mt19937_64 random(seed);
  for (uint64_t node_bytes : {1ull, 60ull, 300ull, 2000ull, 1ull << 30})
    for (size_t count : {0, 1, 2, 7, 300}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", nodes of " + std::to_string(node_bytes) + ", keys " +
                   std::to_string(count));
      Values values = random_values(random, count);
      Database database;
      database.put(make_database(values, config_of(node_bytes, count % 2 == 0), 10));
      auto read = read_all(*database.store);
      ASSERT_TRUE(read.ok()) << read.error().text();
      ASSERT_EQ(*read, values);
      std::vector<std::string> findings;
      auto checked =
          check_ocdbt(*database.store, "", {}, [&](const Error& error) { findings.push_back(error.text()); });
      ASSERT_TRUE(checked.ok());
      EXPECT_EQ(*checked, count);
      EXPECT_THAT(findings, testing::IsEmpty());
      OcdbtOptions small;
      small.cache_bytes = 1;
      auto store = *open_ocdbt_store(*database.store, "", small);
      for (const auto& [key, value] : values) {
        ASSERT_EQ(*store->size(key), value.size());
        std::string back(value.size(), ' ');
        ReadOp op{key, 0, std::as_writable_bytes(std::span(back))};
        ASSERT_TRUE(store->read({&op, 1}).ok());
        ASSERT_EQ(back, value);
        EXPECT_EQ(values.contains(key + "x"), store->size(key + "x")->has_value());
      }
      EXPECT_EQ(store->list("a")->size(),
                static_cast<size_t>(std::count_if(values.begin(), values.end(),
                                                  [](const auto& v) { return v.first.starts_with("a"); })));
    }
}

TEST(Ocdbt, DatabasesBelowOneAreMergedByReference) {
  std::mt19937_64 random(5);
  Values all = random_values(random, 200);
  std::map<std::string, Bytes> files;
  std::vector<std::string> children = {"ocdbt.process_0/", "ocdbt.process_1/", "ocdbt.process_2/"};
  for (size_t child = 0; child < children.size(); ++child) {
    Values own;
    size_t i = 0;
    for (const auto& [key, value] : all)
      if (i++ % 3 == child) own[key] = value;
    for (auto& [name, bytes] : make_database(own, config_of(300, true), 10))
      files["x/" + children[child] + name] = bytes;
  }
  Database database;
  database.put(files);
  OcdbtTreeBuilder builder(config_of(500, false), {"", "d/root"});
  ASSERT_TRUE(merge_ocdbt(*database.store, "x/", children, builder).ok());
  auto version = *builder.finish();
  version.generation = 1;
  EXPECT_EQ(version.statistics.keys, 200u);
  files["x/d/root"] = builder.nodes();
  files["x/manifest.ocdbt"] = *make_ocdbt_manifest(config_of(500, false), version, {"", "d/root"});
  Database merged;
  merged.put(files);
  EXPECT_EQ(*read_all(*merged.store, "x/"), all);
  EXPECT_TRUE(check_ocdbt(*merged.store, "x/", {}, [](const Error& error) { ADD_FAILURE() << error.text(); }).ok());
  // A merged database is a child like any other: its files are found through it.
  OcdbtTreeBuilder above(config_of(1 << 20, false), {"", "d/top"});
  ASSERT_TRUE(merge_ocdbt(*merged.store, "", std::vector<std::string>{"x/"}, above).ok());
  version = *above.finish();
  version.generation = 1;
  files["d/top"] = above.nodes();
  files["manifest.ocdbt"] = *make_ocdbt_manifest(config_of(1 << 20, false), version, {"", "d/top"});
  Database twice;
  twice.put(files);
  EXPECT_EQ(*read_all(*twice.store), all);
  OcdbtTreeBuilder again(config_of(500, false), {"", "d/root"});
  auto status = merge_ocdbt(*database.store, "x/", std::vector<std::string>{children[0], children[0]}, again);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kCorrupt);
}

TEST(Ocdbt, KeysMustComeInOrderAndFit) {
  OcdbtTreeBuilder builder(config_of(1000, false), {"", "d/x"});
  ASSERT_TRUE(builder.add("b", view_of("1")).ok());
  EXPECT_EQ(builder.add("b", view_of("1")).error().code, Code::kInvalidArgument);
  EXPECT_EQ(builder.add("a", view_of("1")).error().code, Code::kInvalidArgument);
  EXPECT_EQ(builder.add(std::string(70'000, 'c'), view_of("1")).error().code, Code::kUnsupported);
  EXPECT_EQ(builder.add("c", Bytes(2 * MiB)).error().code, Code::kInvalidArgument);
}

TEST(Ocdbt, EveryFlippedBitOfMetadataIsSeen) {
  std::mt19937_64 random(11);
  Values values = random_values(random, 9);
  auto files = make_database(values, config_of(150, true), 100);
  for (const auto& [name, bytes] : files)
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      auto bad = files;
      bad[name][bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      Database database;
      database.put(bad);
      auto read = read_all(*database.store);
      ASSERT_FALSE(read.ok()) << name << " bit " << bit;
      ASSERT_TRUE(read.error().code == Code::kCorrupt || read.error().code == Code::kUnsupported)
          << read.error().text();
      ASSERT_THAT(read.error().path, HasSubstr(name));
    }
}

TEST(Ocdbt, TruncatedAndMissingFiles) {
  Values values = {{"a", std::string(50, 'x')}, {"b", "short"}};
  auto files = make_database(values, config_of(1 << 20, false), 10);
  for (const auto& [name, bytes] : files) {
    auto without = files;
    without.erase(name);
    Database missing;
    missing.put(without);
    auto read = read_all(*missing.store);
    ASSERT_FALSE(read.ok()) << name;
    EXPECT_EQ(read.error().code, Code::kNotFound) << name;
    auto cut = files;
    cut[name].pop_back();
    Database shorter;
    shorter.put(cut);
    read = read_all(*shorter.store);
    ASSERT_FALSE(read.ok()) << name;
    EXPECT_EQ(read.error().code, Code::kCorrupt) << name << read.error().text();
    int findings = 0;
    auto checked = check_ocdbt(*shorter.store, "", {}, [&](const Error&) { ++findings; });
    EXPECT_TRUE(!checked.ok() || findings > 0) << name;
  }
}

/// A frame made by hand around a body.
Bytes frame(uint32_t magic, const Bytes& body) {
  Bytes out;
  append_le(out, __builtin_bswap32(magic));
  append_le(out, uint64_t{14 + body.size() + 4});
  out.resize(out.size() + 2);
  out.insert(out.end(), body.begin(), body.end());
  append_le(out, crc32c(out));
  return out;
}

TEST(Ocdbt, LiesInNodesAreRefused) {
  auto node = [](std::string_view hex) { return parse_ocdbt_node(frame(0x0cdb20de, from_hex(hex)), ""); };
  // height, files, count, prefixes, suffixes, keys, lengths, kinds, (file, offset), inline values
  EXPECT_TRUE(node("00 00 01 01 61 01 00 78").ok());
  const std::pair<const char*, const char*> lies[] = {
      {"00 00 00", "empty"},
      {"00 00 01 01 61 01 00 78 00", "follow"},
      {"00 00 01 01 61 02 00 78", "ends early"},
      {"00 00 01 01 61 01 02 78", "no known kind"},
      {"00 00 01 01 61 01 01 00 05", "not there"},
      {"00 00 02 02 01 01 61 62 00 00 00 00", "shares more"},
      {"00 00 02 00 01 01 62 61 00 00 00 00", "not in order"},
      {"00 00 02 00 01 01 61 61 00 00 00 00", "not in order"},
      {"00 00 ffffff7f 01", "more than fits"},
      {"00 00 01 01 61 8080808080808080808001 00 78", "64 bits"},
      {"00 01 01 00 78 01 01 61 01 01 00 ffffffffffffffff7f", "63 bits"},
      {"00 01 01 02 78 01 01 61 01 00 78", "shorter than its base"},
      {"01 01 01 00 78 01 01 02 61 00 00 00 00 00 00", "shares more than its key"},
  };
  for (const auto& [hex, what] : lies) {
    auto parsed = node(hex);
    ASSERT_FALSE(parsed.ok()) << hex;
    EXPECT_EQ(parsed.error().code, Code::kCorrupt);
    EXPECT_THAT(parsed.error().message, HasSubstr(what)) << hex;
  }
}

TEST(Ocdbt, SmallFramesThatClaimMuchAreRefused) {
  int32_t level = 3;
  auto code_of = [](auto parsed) { return parsed.ok() ? Code::kInternal : parsed.error().code; };
  auto zeros = *detail::make_ocdbt_frame(detail::OcdbtMagic::kNode, Bytes(32 * MiB), &level);
  ASSERT_LT(zeros.size(), 4 * KiB);
  auto bomb = parse_ocdbt_node(zeros, "");
  ASSERT_EQ(code_of(bomb), Code::kResourceExhausted);
  EXPECT_THAT(bomb.error().text(), HasSubstr("bytes of the file"));
  // 60,000 bytes of a path or a key, and 2,000 more that share them.
  Bytes names;
  detail::append_varint(names, 2001);
  for (int i = 0; i < 2000; ++i) detail::append_varint(names, 60000);
  detail::append_varint(names, 60000);
  names.resize(names.size() + 2000);
  Bytes paths(1), keys(2);
  paths.insert(paths.end(), names.begin(), names.end());
  paths.resize(paths.size() + 2001 + 60000);
  EXPECT_EQ(code_of(parse_ocdbt_node(frame(0x0cdb20de, paths), "", 64 * MiB)), Code::kResourceExhausted);
  detail::append_varint(keys, 2001);
  for (uint64_t i = 0; i < 2000; ++i) detail::append_varint(keys, 60000 + i);  // each key the one before and a byte
  detail::append_varint(keys, 60000);
  keys.resize(keys.size() + 2000, std::byte{1});
  keys.resize(keys.size() + 62000, std::byte{'a'});
  EXPECT_EQ(code_of(parse_ocdbt_node(frame(0x0cdb20de, keys), "", MiB)), Code::kResourceExhausted);
  // Counts alone: a million entries of nothing.
  Bytes counted = from_hex("00 00 808040");
  counted.resize(4 * MiB);
  EXPECT_EQ(code_of(parse_ocdbt_node(frame(0x0cdb20de, counted), "", 32 * MiB)), Code::kResourceExhausted);
}

TEST(Ocdbt, ATreeThatRefersToANodeTwiceEnds) {
  // Three levels, each of two children that are one and the same node: keys of eight leaves from three nodes.
  OcdbtFile file{"", "d/x"};
  Bytes nodes = frame(0x0cdb20de, from_hex("00 00 01 01 61 01 00 78"));
  uint64_t offset = 0, length = nodes.size();
  for (int height = 1; height < 4; ++height) {
    Bytes body = from_hex("0" + std::to_string(height) + "01 03 00" + hex_of("d/x") + "02 00 01 01 01 01" +
                          hex_of("ab") + "00 00");
    for (int column = 0; column < 2; ++column)
      for (int child = 0; child < 2; ++child) body.push_back(static_cast<std::byte>(column == 0 ? offset : length));
    body.resize(body.size() + 6);
    Bytes made = frame(0x0cdb20de, body);
    offset = nodes.size();
    length = made.size();
    nodes.insert(nodes.end(), made.begin(), made.end());
  }
  OcdbtVersion version{1, 3, OcdbtRange{0, offset, length}, {8, 0, 0}, 0};
  Database database;
  database.put({{"d/x", nodes}, {"manifest.ocdbt", *make_ocdbt_manifest(config_of(1, false), version, file)}});
  auto read = read_all(*database.store);
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, HasSubstr("twice")) << read.error().text();
}

TEST(Ocdbt, FilesOutsideTheDatabaseAreNotOpened) {
  for (const char* path : {"../secret", "/etc/passwd", "d/../../x", ""}) {
    OcdbtConfig config = config_of(1 << 20, false);
    OcdbtTreeBuilder builder(config, {"", "d/n"});
    ASSERT_TRUE(builder.add("k", {"", path}, 0, 5).ok());
    auto version = *builder.finish();
    version.generation = 1;
    Database database;
    database.put({{"d/n", builder.nodes()}, {"manifest.ocdbt", *make_ocdbt_manifest(config, version, {"", "d/n"})}});
    auto read = read_all(*database.store);
    ASSERT_FALSE(read.ok()) << path;
    EXPECT_EQ(read.error().code, Code::kCorrupt) << path << read.error().text();
  }
}

std::unique_ptr<Store> sample(const std::string& name) {
  return *open_file_store(std::string(SHARDWRIGHT_TEST_DATA) + "/orbax/" + name);
}

TEST(Ocdbt, ReadsDatabasesOfOrbax) {
  auto store = sample("indirect");
  auto values = read_all(*store);
  ASSERT_TRUE(values.ok()) << values.error().text();
  EXPECT_EQ(values->size(), 11u);
  EXPECT_EQ((*values)["layer.w/0.0"].size(), 1939u);  // in a file of the database below
  EXPECT_EQ((*values)["small/0"].size(), 21u);        // in the node
  auto database = *OcdbtDatabase::open(*store, "");
  auto found = *database->find("layer.w/0.1");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->value.file, "ocdbt.process_0/d/54e0e5c3699696b5fd5a3d87553ac517");
  EXPECT_FALSE(*database->find("layer.w/0.9"));
  for (const char* name :
       {"indirect", "sharded_2x4", "zarr3_ocdbt", "multiprocess_2x4/1/default", "v1_checkpointables/cfg"}) {
    auto checked =
        check_ocdbt(*sample(name), "", {}, [&](const Error& error) { ADD_FAILURE() << name << error.text(); });
    ASSERT_TRUE(checked.ok()) << name;
    EXPECT_GT(*checked, 0u);
  }
  // A database below another directory of the store.
  EXPECT_EQ(read_all(*store, "ocdbt.process_0/")->size(), 11u);
}

TEST(Ocdbt, IsAStoreThatCannotBeWritten) {
  auto base = sample("indirect");
  auto store = *open_ocdbt_store(*base, "");
  EXPECT_EQ(store->begin("").error().code, Code::kUnsupported);
  EXPECT_FALSE(store->caps().random_write);
  Bytes into(5);
  ReadOp beyond{"small/0", 20, into}, absent{"nothing", 0, into};
  EXPECT_EQ(store->read({&beyond, 1}).error().code, Code::kCorrupt);
  EXPECT_EQ(store->read({&absent, 1}).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace shardwright
