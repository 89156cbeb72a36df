// Our chains against libhdf5's own filters: the bytes of a chunk it wrote, and of the same data through ours.
#include <gtest/gtest.h>
#include <hdf5.h>

#include <random>

#include "shardwright/codec/codec.h"

namespace shardwright {
namespace {

struct Filters {
  bool fletcher_first, shuffle, fletcher;  ///< a sum before the shuffle leaves it a partial element
  unsigned level;                          ///< of deflate; 0 for none
};

/// The stored bytes of the only chunk of a one-dimensional dataset of `size` bytes in elements of element_bytes each.
Bytes chunk_by_hdf5(const Filters& filters, View data, size_t element_bytes) {
  hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_fapl_core(access, 1 << 20, false);  // in memory
  hid_t file = H5Fcreate("chunk.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access);
  hid_t create = H5Pcreate(H5P_DATASET_CREATE);
  const hsize_t extent = data.size() / element_bytes;
  H5Pset_chunk(create, 1, &extent);
  if (filters.fletcher_first) H5Pset_fletcher32(create);
  if (filters.shuffle) H5Pset_shuffle(create);
  if (filters.level > 0) H5Pset_deflate(create, filters.level);
  if (filters.fletcher) H5Pset_fletcher32(create);
  hid_t type = H5Tcreate(H5T_OPAQUE, element_bytes);
  hid_t space = H5Screate_simple(1, &extent, nullptr);
  hid_t dataset = H5Dcreate2(file, "d", type, space, H5P_DEFAULT, create, H5P_DEFAULT);
  EXPECT_GE(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data.data()), 0);
  H5Fflush(file, H5F_SCOPE_LOCAL);
  hsize_t size = 0, start = 0;
  EXPECT_GE(H5Dget_chunk_storage_size(dataset, &start, &size), 0);
  Bytes chunk(size);
  uint32_t mask = 1;
  EXPECT_GE(H5Dread_chunk(dataset, H5P_DEFAULT, &start, &mask, chunk.data()), 0);
  EXPECT_EQ(mask, 0u);  // no filter was left out
  H5Dclose(dataset);
  H5Sclose(space);
  H5Tclose(type);
  H5Pclose(create);
  H5Fclose(file);
  H5Pclose(access);
  return chunk;
}

Result<Bytes> run(Result<std::unique_ptr<Codec>> codec, View in, std::mt19937& random) {
  Bytes out;
  auto emit = [&](View made) -> Status {
    out.insert(out.end(), made.begin(), made.end());
    return {};
  };
  for (int i = 0; i < 10; ++i) {
    size_t part = random() % (in.size() + 1);
    SHARDWRIGHT_TRY((*codec)->push(in.first(part), false, emit));
    in = in.subspan(part);
  }
  SHARDWRIGHT_TRY((*codec)->push(in, true, emit));
  return out;
}

TEST(Hdf5Chunk, BytesAreThoseOfHdf5) {
  auto seed = std::random_device()();
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    Filters filters{random() % 3 == 0, random() % 2 == 0, random() % 2 == 0, static_cast<unsigned>(random() % 10)};
    const size_t element_bytes = 1 + random() % 9;
    Bytes data(element_bytes * (1 + random() % 3000));
    // All zeros and all ones are where Fletcher's two zeros, 0 and 65535, differ.
    auto kind = random() % 4;
    for (auto& byte : data) byte = static_cast<std::byte>(kind == 0 ? 0 : kind == 1 ? 0xff : random() % 32);
    Bytes chunk = chunk_by_hdf5(filters, data, element_bytes);
    std::vector<CodecSpec> chain;
    if (filters.fletcher_first) chain.push_back({"fletcher32", 0});
    if (filters.shuffle) chain.push_back({"shuffle", element_bytes});
    if (filters.level > 0) chain.push_back({"zlib", filters.level});
    if (filters.fletcher) chain.push_back({"fletcher32", 0});
    SCOPED_TRACE("seed " + std::to_string(seed) + " round " + std::to_string(round));
    auto encoded = run(make_encoder(chain, data.size()), data, random);
    ASSERT_TRUE(encoded.ok()) << encoded.error().text();
    ASSERT_EQ(*encoded, chunk);
    auto decoded = run(make_decoder(chain, data.size()), chunk, random);
    ASSERT_TRUE(decoded.ok()) << decoded.error().text();
    ASSERT_EQ(*decoded, data);
  }
}

Bytes from_hex(std::string_view hex) {
  Bytes bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return bytes;
}

TEST(Hdf5Chunk, ChunksOfH5py) {
  // h5py 3.16.0 with HDF5 2.0.0: create_dataset(data=np.arange(10, dtype="<f4"), chunks=(10,), fletcher32=True), the second one with
  // shuffle=True, compression="gzip", compression_opts=4 too; d.id.read_direct_chunk((0,))[1].hex().
  Bytes plain = from_hex("000000000000803f0000004000004040000080400000a0400000c0400000e0400000004100001041449253a4");
  Bytes packed = from_hex("785e6360c0021a181c1a161c78c020c060ef00068e8e00411205d25b5542c2");
  std::vector<float> numbers(10);
  for (size_t i = 0; i < 10; ++i) numbers[i] = static_cast<float>(i);
  auto raw = std::as_bytes(std::span(numbers));
  const Bytes data(raw.begin(), raw.end());
  std::mt19937 random(1);
  std::vector<CodecSpec> sum{{"fletcher32", 0}}, all{{"shuffle", 4}, {"zlib", 4}, {"fletcher32", 0}};
  EXPECT_EQ(*run(make_encoder(sum, 40), data, random), plain);
  EXPECT_EQ(*run(make_decoder(sum, 40), plain, random), data);
  EXPECT_EQ(*run(make_decoder(all, 40), packed, random), data);
}

TEST(Hdf5Chunk, PartialLastElementIsNotShuffled) {
  Bytes data = bytes_of("abcdABCDxy");
  std::mt19937 random(1);
  std::vector<CodecSpec> chain{{"shuffle", 4}};
  EXPECT_EQ(text_of(*run(make_encoder(chain, 10), data, random)), "aAbBcCdDxy");
  EXPECT_EQ(text_of(*run(make_decoder(chain, 10), bytes_of("aAbBcCdDxy"), random)), "abcdABCDxy");
}

TEST(Hdf5Chunk, FletcherOfOldFilesIsAccepted) {
  // Before 1.6.3 little-endian machines swapped the bytes of each half.
  std::mt19937 random(1);
  std::vector<CodecSpec> chain{{"fletcher32", 0}};
  Bytes chunk = *run(make_encoder(chain, 6), bytes_of("abcdef"), random);
  // 0x6162 + 0x6364 + 0x6566 = 0x12a2c -> 0x2a2d; 3 * 0x6162 + 2 * 0x6364 + 0x6566 = 0x25054 -> 0x5056
  EXPECT_EQ(load_le<uint32_t>(View(chunk).last(4)), 0x50562a2du);
  std::swap(chunk[6], chunk[7]);
  std::swap(chunk[8], chunk[9]);
  EXPECT_TRUE(run(make_decoder(chain, 6), chunk, random).ok());
  std::swap(chunk[6], chunk[7]);
  EXPECT_EQ(run(make_decoder(chain, 6), chunk, random).error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace shardwright
