// Python's zipfile as the other party: it reads what ZipLayout writes, read_zip reads what it writes.
#include <gtest/gtest.h>

#include <cstdlib>

#include "shardwright/base/checksum.h"
#include "shardwright/store/testing.h"
#include "shardwright/store/zip.h"

namespace shardwright::testing_support {
namespace {

bool has_python() { return std::system("python3 -c 'import zipfile' 2>/dev/null") == 0; }

/// Runs a script with the archive's path as argument; its failure is the test's.
void run_python(const TemporaryDirectory& directory, const std::string& script, const std::string& archive) {
  write_file(directory.at("script.py"), script);
  EXPECT_EQ(std::system(("python3 " + directory.at("script.py") + " " + archive).c_str()), 0);
}

/// Writes the layout with payloads at their places; what lies between the writes is a hole.
void write_archive(const std::string& path, const std::vector<ZipLayout::Entry>& entries,
                   const std::vector<std::string>& payloads, const std::vector<uint32_t>& crcs) {
  ZipLayout layout(entries);
  std::ofstream out(path, std::ios::binary);
  auto put_at = [&](uint64_t offset, std::string_view text) {
    out.seekp(static_cast<std::streamoff>(offset));
    out << text;
  };
  for (size_t i = 0; i < entries.size(); ++i) {
    put_at(layout.local_header_offset(i), text_of(layout.local_header(i, crcs[i])));
    put_at(layout.payload_offset(i), payloads[i]);
  }
  put_at(layout.directory_offset(), text_of(layout.directory(crcs)));
}

TEST(ZipPython, ReadsWhatTheLayoutWrites) {
  if (!has_python()) GTEST_SKIP() << "no python3";
  TemporaryDirectory directory;
  std::vector<std::string> payloads = {"{}", "", pattern(100'000)};
  std::vector<uint32_t> crcs;
  for (const std::string& payload : payloads) crcs.push_back(crc32(view_of(payload)));
  uint32_t time = (2026u - 1980) << 25 | 3 << 21 | 4 << 16 | 5 << 11 | 6 << 5 | 8 / 2;
  write_archive(
      directory.at("z"),
      {{"metadata.json", 2, time, 1}, {"n\xc3\xa4me", 0, time, 4096}, {"model.weights.h5", 100'000, time, 64}},
      payloads, crcs);
  run_python(directory, R"(import sys, zipfile
z = zipfile.ZipFile(sys.argv[1])
assert z.testzip() is None
assert z.namelist() == ["metadata.json", "n\u00e4me", "model.weights.h5"], z.namelist()
assert z.read("metadata.json") == b"{}" and z.read("n\u00e4me") == b"" and len(z.read("model.weights.h5")) == 100000
for info in z.infolist():
    assert info.date_time == (2026, 3, 4, 5, 6, 8) and info.compress_type == 0 and info.external_attr >> 16 == 0o100644, info
)",
             directory.at("z"));
}

TEST(ZipPython, ReadsMembersAndOffsetsBeyondFourGigabytes) {
  if (!has_python()) GTEST_SKIP() << "no python3";
  TemporaryDirectory directory;
  const uint64_t big = (4ull << 30) + 12'345;
  write_archive(
      directory.at("z"),
      {{"first", 3, 1 << 21 | 1 << 16, 1}, {"big", big, 1 << 21 | 1 << 16, 64}, {"last", 4, 1 << 21 | 1 << 16, 64}},
      {"abc", "begins", "done"}, {crc32(view_of("abc")), 0, crc32(view_of("done"))});
  run_python(directory, R"(import sys, zipfile
z = zipfile.ZipFile(sys.argv[1])
assert z.read("first") == b"abc" and z.read("last") == b"done"
info = z.getinfo("big")
assert info.file_size == info.compress_size == (4 << 30) + 12345
assert z.open("big").read(6) == b"begins"
)",
             directory.at("z"));
}

TEST(ZipPython, ReadsMoreMembersThanSixteenBitsCount) {
  if (!has_python()) GTEST_SKIP() << "no python3";
  TemporaryDirectory directory;
  std::vector<ZipLayout::Entry> entries;
  for (int i = 0; i < 65'535; ++i) entries.push_back({"m" + std::to_string(i), 0, 1 << 21 | 1 << 16, 1});
  write_archive(directory.at("z"), entries, std::vector<std::string>(entries.size()),
                std::vector<uint32_t>(entries.size()));
  run_python(directory, R"(import sys, zipfile
assert len(zipfile.ZipFile(sys.argv[1]).namelist()) == 65535
)",
             directory.at("z"));
}

TEST(ZipPython, WhatItWritesIsRead) {
  if (!has_python()) GTEST_SKIP() << "no python3";
  TemporaryDirectory directory;
  // A pipe cannot be rewound: sizes and CRC come after the payload, as torch writes them.
  run_python(directory, R"(import io, sys, zipfile
class Pipe(io.RawIOBase):
    def __init__(self, f): self.f = f
    def writable(self): return True
    def write(self, b): return self.f.write(b)
def fill(z):
    z.writestr("stored", b"s" * 1000)
    z.writestr("deflated", b"d" * 1000, zipfile.ZIP_DEFLATED)
    with z.open("wide", "w", force_zip64=True) as member: member.write(b"w" * 1000)
    z.writestr("dir/", b"")
    z.writestr("n\u00e4me", b"")
    z.comment = b"a comment"
with zipfile.ZipFile(sys.argv[1], "w") as z: fill(z)
with open(sys.argv[1] + ".pipe", "wb") as f, zipfile.ZipFile(Pipe(f), "w") as z: fill(z)
)",
             directory.at("z"));
  auto store = std::move(*open_file_store(directory.path()));
  for (const char* name : {"z", "z.pipe"}) {
    SCOPED_TRACE(name);
    auto members = read_zip(*store, name);
    ASSERT_OK(members);
    ASSERT_EQ(members->size(), 5u);
    std::string file = read_file(directory.at(name));
    for (size_t i : {0u, 2u}) {
      const ZipMember& member = (*members)[i];
      std::string payload = file.substr(member.offset, member.stored_bytes);
      EXPECT_EQ(payload, std::string(1000, member.name[0]));
      EXPECT_EQ(member.crc32, crc32(view_of(payload)));
    }
    EXPECT_EQ((*members)[1].method, 8);
    EXPECT_EQ((*members)[1].bytes, 1000u);
    EXPECT_LT((*members)[1].stored_bytes, 100u);
    EXPECT_EQ((*members)[4].name, "n\xc3\xa4me");
  }
}

}  // namespace
}  // namespace shardwright::testing_support
