#include "shardwright/format/isolate.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "shardwright/format/hdf5_handle.h"

namespace shardwright {
namespace {

using ::testing::HasSubstr;

/// One tensor of two elements with the given piece of it.
Result<Catalog> one_tensor(const Box& box, Place place) {
  CatalogBuilder builder;
  auto added = builder.add_tensor("a", DType::kF32, std::vector<int64_t>{2});
  if (!added.ok()) return std::move(added.error());
  if (place.site == Place::kLiteral) place = builder.add_literal(Bytes(box.elements() * 4));
  SHARDWRIGHT_TRY(builder.add_piece({box, place, builder.add_encoding({DType::kF32}), {}}));
  return builder.build(true);
}

const Box kWhole{{0}, {2}};

Result<Catalog> one_tensor() { return one_tensor(kWhole, {Place::kLiteral}); }

Result<Catalog> isolated(const std::function<Result<Catalog>(const OpenOptions&)>& open, int timeout_ms = 20'000) {
  return open_isolated({}, timeout_ms, open);
}

TEST(Isolate, CatalogueErrorAndFindingsCome) {
  auto catalog = isolated([](const OpenOptions&) { return one_tensor(); });
  ASSERT_TRUE(catalog.ok()) << catalog.error().text();
  EXPECT_EQ(catalog->spec(0).name, "a");
  auto refused = isolated([](const OpenOptions&) -> Result<Catalog> {
    return fail(Code::kUnsupported, "no")
        .at_path("p")
        .at_tensor("t")
        .at_offset(7)
        .with_found("f")
        .with_expected("e")
        .with_hint("h")
        .within("c");
  });
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_EQ(refused.error().text(), "p@7: tensor 't': no (found f, expected e)");
  EXPECT_EQ(refused.error().hint, "h");
  EXPECT_THAT(refused.error().context, ::testing::ElementsAre("c"));
  std::vector<Error> findings;
  OpenOptions verify;
  verify.findings = &findings;
  ASSERT_TRUE(open_isolated(verify, 20'000, [](const OpenOptions& inner) {
                inner.remark(fail(Code::kCorrupt, "odd"));
                return one_tensor();
              }).ok());
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].message, "odd");
}

TEST(Isolate, PlacesInMemoryAndHolesAreNonsense) {
  const uint64_t here = reinterpret_cast<uint64_t>(&kWhole);
  const std::pair<Box, Place> lies[] = {{kWhole, {Place::kMemory, -1, 0, here, 8}},
                                        {kWhole, {Place::kCall, -1, 0, 0, 8}},
                                        {{{0}, {1}}, {Place::kLiteral}}};
  for (const auto& [box, place] : lies) {
    auto catalog = isolated([&box = box, &place = place](const OpenOptions&) { return one_tensor(box, place); });
    ASSERT_FALSE(catalog.ok());
    EXPECT_EQ(catalog.error().code, Code::kCorrupt);
    EXPECT_THAT(catalog.error().text(), HasSubstr("nonsense"));
  }
}

TEST(Isolate, AnAnswerIsNoLongerThanTheChildMayBeLarge) {
  OpenOptions little;
  little.max_metadata_bytes = 0;
  auto is_open = [](int fd) { return ::fcntl(fd, F_GETFD) >= 0; };
  std::vector<int> free;  // the pipe will be one of these; whatever else is open belongs to others, a log for one
  for (int fd = 3; fd < 64; ++fd)
    if (!is_open(fd)) free.push_back(fd);
  auto endless = open_isolated(little, 20'000, [&](const OpenOptions&) -> Result<Catalog> {
    Bytes block(MiB);
    for (int fd : free)
      while (::write(fd, block.data(), block.size()) > 0) {
      }
    return one_tensor();
  });
  ASSERT_FALSE(endless.ok());
  EXPECT_EQ(endless.error().code, Code::kResourceExhausted);
}

TEST(Isolate, ACrashIsACorruptFile) {
  auto crashed = isolated([](const OpenOptions&) -> Result<Catalog> {
    ::signal(SIGSEGV, SIG_DFL);
    ::raise(SIGSEGV);
    return one_tensor();
  });
  ASSERT_FALSE(crashed.ok());
  EXPECT_EQ(crashed.error().code, Code::kCorrupt);
  EXPECT_THAT(crashed.error().text(), HasSubstr("crashed on this file"));
}

TEST(Isolate, TimeIsLimited) {
  auto late = isolated(
      [](const OpenOptions&) {
        ::sleep(30);
        return one_tensor();
      },
      100);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Code::kResourceExhausted);
}

TEST(Isolate, NoSocketsNoExecLittleMemory) {
  auto report = [](const OpenOptions&) -> Result<Catalog> {
    std::string allowed;
    if (::socket(AF_INET, SOCK_STREAM, 0) >= 0 || errno != EPERM) allowed += " socket";
    if (::socket(AF_UNIX, SOCK_STREAM, 0) >= 0 || errno != EPERM) allowed += " unix";
    char name[] = "/bin/true";
    char* arguments[] = {name, nullptr};
    if (::execv(name, arguments) == 0 || errno != EPERM) allowed += " exec";
    if (::mmap(nullptr, 64ull << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED)
      allowed += " memory";
    return fail(Code::kInternal, "allowed:" + allowed);
  };
  EXPECT_EQ(isolated(report).error().message, "allowed:");
}

TEST(Isolate, TheLibraryWorksInTheChildWhileItIsLockedHere) {
  Hdf5Lock lock;
  auto catalog = isolated([](const OpenOptions&) -> Result<Catalog> {
    Hdf5Lock inner;
    Hdf5Properties properties(H5Pcreate(H5P_FILE_ACCESS));
    return properties.ok() ? one_tensor() : Result<Catalog>(fail(Code::kInternal, "no"));
  });
  EXPECT_TRUE(catalog.ok());
}

}  // namespace
}  // namespace shardwright
