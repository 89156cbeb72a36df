#include "shardwright/store/zip.h"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <functional>
#include <random>

#include "shardwright/store/testing.h"

namespace shardwright::testing_support {
namespace {

uint32_t crc_of(std::string_view text) {
  return static_cast<uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size())));
}

/// A whole archive by ZipLayout.
std::string archive_of(const Files& files, uint64_t align = 1) {
  std::vector<ZipLayout::Entry> entries;
  for (const auto& [name, text] : files) entries.push_back({name, text.size(), 0x58210000, align});
  ZipLayout layout(entries);
  std::string out;
  std::vector<uint32_t> crcs;
  for (size_t i = 0; i < files.size(); ++i) {
    EXPECT_EQ(out.size(), layout.local_header_offset(i));
    crcs.push_back(crc_of(files[i].second));
    Bytes header = layout.local_header(i, crcs[i]);
    EXPECT_EQ(header.size(), layout.local_header_bytes(i));
    out += text_of(header);
    EXPECT_EQ(out.size(), layout.payload_offset(i));
    out += files[i].second;
  }
  EXPECT_EQ(out.size(), layout.directory_offset());
  Bytes directory = layout.directory(crcs);
  EXPECT_EQ(directory.size(), layout.directory_bytes());
  return out + std::string(text_of(directory));
}

Result<std::vector<ZipMember>> parse(const std::string& archive) {
  auto store = open_memory_store();
  EXPECT_OK(put(*store, "", {{"z", archive}}));
  return read_zip(*store, "z");
}

void set16(std::string& bytes, size_t at, uint16_t value) { std::memcpy(bytes.data() + at, &value, 2); }
void set32(std::string& bytes, size_t at, uint32_t value) { std::memcpy(bytes.data() + at, &value, 4); }
void set64(std::string& bytes, size_t at, uint64_t value) { std::memcpy(bytes.data() + at, &value, 8); }

const Files kTwo = {{"a.txt", "hello"}, {"dir/b.bin", std::string(300, 'b')}};

TEST(Zip, ReadsWhatTheLayoutWrites) {
  for (uint64_t align : {1u, 8u, 64u, 4096u}) {
    Files files = {{"config.json", "{}"}, {"empty", ""}, {"näme", "ünïcode"}, {"model.weights.h5", pattern(10'000)}};
    std::string archive = archive_of(files, align);
    auto members = parse(archive);
    ASSERT_OK(members);
    ASSERT_EQ(members->size(), files.size());
    for (size_t i = 0; i < files.size(); ++i) {
      const ZipMember& member = (*members)[i];
      EXPECT_EQ(member.name, files[i].first);
      EXPECT_EQ(member.offset % align, 0u);
      EXPECT_EQ(member.bytes, files[i].second.size());
      EXPECT_EQ(member.crc32, crc_of(files[i].second));
      EXPECT_EQ(archive.substr(member.offset, member.stored_bytes), files[i].second);
    }
  }
}

TEST(Zip, AnEmptyArchiveIsItsEndRecordAlone) {
  // APPNOTE 4.3.16, all zero but the signature.
  EXPECT_EQ(archive_of({}), std::string("PK\5\6", 4) + std::string(18, '\0'));
  auto members = parse(archive_of({}));
  ASSERT_OK(members);
  EXPECT_TRUE(members->empty());
}

TEST(Zip, ACommentMayContainAnythingEvenAnEndSignature) {
  std::string archive = archive_of(kTwo), comment("not PK\5\6 the end");
  archive += comment;
  set16(archive, archive.size() - comment.size() - 2, static_cast<uint16_t>(comment.size()));
  auto members = parse(archive);
  ASSERT_OK(members);
  EXPECT_EQ(members->size(), 2u);
}

TEST(Zip, ADescriptorAfterThePayloadLeavesTheLocalHeaderEmpty) {
  std::string archive = archive_of({{"a", "hello"}});
  archive[6] = archive[30 + 1 + 5 + 8] = 8;           // flag in both headers
  archive.replace(14, 12, 12, '\0');                  // CRC and sizes: later
  archive.insert(30 + 1 + 5, "PK\7\10CRC.5...5...");  // skipped, not trusted
  set32(archive, archive.size() - 22 + 16, 30 + 1 + 5 + 16);
  auto members = parse(archive);
  ASSERT_OK(members);
  EXPECT_EQ(archive.substr((*members)[0].offset, (*members)[0].bytes), "hello");
  EXPECT_EQ((*members)[0].crc32, crc_of("hello"));
}

/// One change to a good archive each: name, change, what the error must be.
struct Lie {
  std::string name;
  std::function<void(std::string&)> tell;
  Code code = Code::kCorrupt;
};

TEST(Zip, EveryLieIsFoundWithAPlace) {
  const std::string good = archive_of(kTwo);
  ASSERT_OK(parse(good));
  const size_t second = 30 + 5 + 5, directory = second + 30 + 9 + 300, entry2 = directory + 46 + 5,
               end = entry2 + 46 + 9;
  ASSERT_EQ(good.size(), end + 22);
  const Lie lies[] = {
      {"empty", [](std::string& z) { z.clear(); }},
      {"truncated in the end record", [](std::string& z) { z.pop_back(); }},
      {"truncated in a payload", [=](std::string& z) { z.resize(second + 50); }},
      {"padded", [](std::string& z) { z += '\0'; }},
      {"junk before", [](std::string& z) { z = "junk" + z; }},
      {"junk before the directory", [=](std::string& z) { z.insert(directory, "junk"); }},
      {"count too large", [=](std::string& z) { set16(z, end + 8, 3), set16(z, end + 10, 3); }},
      {"count too small", [=](std::string& z) { set16(z, end + 8, 1), set16(z, end + 10, 1); }},
      {"counts differ", [=](std::string& z) { set16(z, end + 8, 1); }},
      {"directory size too large", [=](std::string& z) { set32(z, end + 12, 0xfffffff0); }},
      {"directory offset too large", [=](std::string& z) { set32(z, end + 16, 0xfffffff0); }},
      {"see zip64, but there is none", [=](std::string& z) { set32(z, end + 16, 0xffffffff); }},
      {"several disks", [=](std::string& z) { set16(z, end + 4, 1); }, Code::kUnsupported},
      {"entry on another disk", [=](std::string& z) { set16(z, directory + 34, 1); }, Code::kUnsupported},
      {"entry without signature", [=](std::string& z) { z[directory] = 'X'; }},
      {"name runs out of the directory", [=](std::string& z) { set16(z, entry2 + 28, 60'000); }},
      {"extra runs out of the directory", [=](std::string& z) { set16(z, entry2 + 30, 1); }},
      {"encrypted", [=](std::string& z) { z[directory + 8] = 1, z[6] = 1; }, Code::kUnsupported},
      {"bzip2", [=](std::string& z) { z[directory + 10] = 12, z[8] = 12; }, Code::kUnsupported},
      {"stored sizes differ", [=](std::string& z) { set32(z, directory + 24, 6), set32(z, 22, 6); }},
      {"size larger than the file",
       [=](std::string& z) {
         for (size_t at : {entry2 + 20, entry2 + 24, second + 18, second + 22}) set32(z, at, 0xf0000000);
       }},
      {"sizes say zip64, but there is no field", [=](std::string& z) { set32(z, directory + 24, 0xffffffff); }},
      {"local sizes say zip64, but there is no field",
       [=](std::string& z) { set32(z, 18, 0xffffffff), set32(z, 22, 0xffffffff); }},
      {"local name differs", [=](std::string& z) { z[30] = 'X'; }},
      {"local name length differs", [=](std::string& z) { set16(z, 26, 4), set16(z, 28, 1); }},
      {"local CRC differs", [=](std::string& z) { z[14] = static_cast<char>(z[14] + 1); }},
      {"local size differs", [=](std::string& z) { z[18] = 4; }},
      {"local method differs", [=](std::string& z) { z[8] = 8; }},
      {"local flags differ", [=](std::string& z) { z[6] = 8; }},
      {"local header has no signature", [=](std::string& z) { z[0] = 'X'; }},
      {"local header in the directory",
       [=](std::string& z) { set32(z, directory + 42, static_cast<uint32_t>(directory - 20)); }},
      {"local header far away", [=](std::string& z) { set32(z, directory + 42, 0xfffffff0); }},
      {"local extra pushes the payload into the next", [=](std::string& z) { set16(z, 28, 10); }},
      {"local extra pushes the payload into the directory", [=](std::string& z) { set16(z, second + 28, 60'000); }},
      {"two entries for one header", [=](std::string& z) { z.replace(entry2 + 42, 4, 4, '\0'); }},
      {"two members of one name", [](std::string& z) { z = archive_of({{"x", "1"}, {"x", "2"}}); }},
      {"empty name", [](std::string& z) { z = archive_of({{"", "1"}}); }},
      {"name with NUL", [](std::string& z) { z = archive_of({{std::string("a\0b", 3), "1"}}); }},
  };
  for (const Lie& lie : lies) {
    SCOPED_TRACE(lie.name);
    std::string bad = good;
    lie.tell(bad);
    auto members = parse(bad);
    EXPECT_CODE(members, lie.code);
    EXPECT_EQ(members.error().path, "memory:z");
    EXPECT_NE(members.error().offset, kNoOffset);
  }
}

/// The same members with zip64 records although nothing needs them, as torch and numpy write.
std::string archive64() {
  std::string z = archive_of({{"a", "hello"}});
  const size_t directory = 30 + 1 + 5, entry = 46 + 1;
  std::string end64("PK\6\6", 4);
  end64.resize(56);
  set64(end64, 4, 44);
  set64(end64, 24, 1), set64(end64, 32, 1), set64(end64, 40, entry), set64(end64, 48, directory);
  std::string locator("PK\6\7", 4);
  locator.resize(20);
  set64(locator, 8, directory + entry);
  set32(locator, 16, 1);
  z.insert(directory + entry, end64 + locator);
  set32(z, z.size() - 22 + 16, 0xffffffff);
  return z;
}

TEST(Zip, Zip64RecordsAreTakenAndCompared) {
  const std::string good = archive64();
  ASSERT_OK(parse(good));
  const size_t end64 = 30 + 1 + 5 + 46 + 1, locator = end64 + 56;
  const Lie lies[] = {
      {"size beyond the file", [=](std::string& z) { set64(z, end64 + 40, ~0ull); }},
      {"offset beyond the file", [=](std::string& z) { set64(z, end64 + 48, 1ull << 60); }},
      {"offset and size overflow",
       [=](std::string& z) { set64(z, end64 + 48, ~0ull - 46 - 1), set32(z, z.size() - 22 + 12, 0xffffffff); }},
      {"count absurd", [=](std::string& z) { set64(z, end64 + 24, 1ull << 60), set64(z, end64 + 32, 1ull << 60); }},
      {"counts differ", [=](std::string& z) { set64(z, end64 + 24, 2); }},
      {"narrow count differs",
       [=](std::string& z) { set16(z, z.size() - 22 + 8, 2), set16(z, z.size() - 22 + 10, 2); }},
      {"record has no signature", [=](std::string& z) { z[end64] = 'X'; }},
      {"record has another length", [=](std::string& z) { set64(z, end64 + 4, 45); }},
      {"locator points behind itself", [=](std::string& z) { set64(z, locator + 8, 1ull << 63); }},
      {"locator points at itself", [=](std::string& z) { set64(z, locator + 8, locator); }},
      {"several disks", [=](std::string& z) { set32(z, locator + 16, 2); }, Code::kUnsupported},
      {"several disks in the record", [=](std::string& z) { set32(z, end64 + 16, 1); }, Code::kUnsupported},
  };
  for (const Lie& lie : lies) {
    SCOPED_TRACE(lie.name);
    std::string bad = good;
    lie.tell(bad);
    EXPECT_CODE(parse(bad), lie.code);
  }
}

TEST(Zip, NoByteCanBeChangedIntoACrash) {
  unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const std::string& good : {archive_of(kTwo, 64), archive64()}) {
    for (int round = 0; round < 3000; ++round) {
      std::string bad = good;
      for (auto changes = 1 + random() % 3; changes > 0; --changes)
        bad[random() % bad.size()] = static_cast<char>(random() % 4 ? random() : 0xff);
      auto members = parse(bad);
      if (!members.ok()) continue;
      for (const ZipMember& member : *members) ASSERT_LE(member.offset + member.stored_bytes, bad.size());
    }
  }
}

TEST(Zip, MembersBeyondFourGigabytesAndTheirNeighbours) {
  TemporaryDirectory directory;
  const uint64_t big = (4ull << 30) + 12'345;
  ZipLayout layout({{"first", 3, 0, 1}, {"big", big, 0, 64}, {"last", 4, 0, 64}});
  uint32_t crcs[] = {crc_of("abc"), 0x12345678, crc_of("done")};
  auto store = std::move(*open_file_store(directory.path()));
  auto transaction = store->begin("");
  ASSERT_OK(transaction);
  // Sparse: unwritten bytes are zeros, the space is not taken.
  auto writer = (*transaction)->create("z", kUnknown);
  ASSERT_OK(writer);
  std::vector<Bytes> headers;
  for (size_t i = 0; i < 3; ++i) headers.push_back(layout.local_header(i, crcs[i]));
  Bytes end = layout.directory(crcs);
  std::vector<WriteOp> ops = {{layout.payload_offset(0), view_of("abc")},
                              {layout.payload_offset(2), view_of("done")},
                              {layout.directory_offset(), end}};
  for (size_t i = 0; i < 3; ++i) ops.push_back({layout.local_header_offset(i), headers[i]});
  ASSERT_OK((*writer)->write(ops));
  ASSERT_OK((*writer)->finish(layout.directory_offset() + layout.directory_bytes()));
  ASSERT_OK((*transaction)->commit({{"z"}, {}, {}}));
  auto members = read_zip(*store, "z");
  ASSERT_OK(members);
  ASSERT_EQ(members->size(), 3u);
  EXPECT_EQ((*members)[1].bytes, big);
  EXPECT_EQ((*members)[1].crc32, 0x12345678u);
  EXPECT_EQ((*members)[1].offset % 64, 0u);
  EXPECT_GT((*members)[2].offset, big);
  std::string last(4, 0);
  ReadOp op{"z", (*members)[2].offset, {reinterpret_cast<std::byte*>(last.data()), 4}};
  ASSERT_OK(store->read({&op, 1}));
  EXPECT_EQ(last, "done");
}

TEST(Zip, MoreMembersThanSixteenBitsCount) {
  Files files;
  for (int i = 0; i < 70'000; ++i) files.push_back({"m" + std::to_string(i), ""});
  auto members = parse(archive_of(files));
  ASSERT_OK(members);
  EXPECT_EQ(members->size(), files.size());
  EXPECT_EQ(members->back().name, "m69999");
}

}  // namespace
}  // namespace shardwright::testing_support
