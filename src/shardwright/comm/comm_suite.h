/// For tests only: what every Comm must do. Each check is run by all ranks at once and says what is wrong, "" when nothing is.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "shardwright/comm/comm.h"

namespace shardwright::testing_support {

struct CommCheck {
  std::string name;
  std::function<std::string(Comm&)> run;
};

namespace comm_checks {

inline Deadline soon() { return deadline_in(std::chrono::seconds(30)); }
inline std::string expect(bool good, const std::string& what) { return good ? "" : what; }
inline std::string expect_ok(const Status& status) { return status.ok() ? "" : status.error().text(); }

/// Bytes that tell rank, peer and call apart, of a length that does too.
inline Bytes letter(int from, int to, int call) {
  return bytes_of(std::string(static_cast<size_t>(from * 7 + to * 3 + call), '.') +
                  fmt::format("{}>{}#{}", from, to, call));
}

inline std::string gathers(Comm& comm) {
  for (int call = 0; call < 20; ++call) {
    auto all = comm.all_gather(call == 7 ? Bytes{} : letter(comm.rank(), 0, call), soon());
    if (!all.ok()) return all.error().text();
    if (all->size() != static_cast<size_t>(comm.size())) return "not one answer per rank";
    for (int rank = 0; rank < comm.size(); ++rank)
      if ((*all)[rank] != (call == 7 ? Bytes{} : letter(rank, 0, call)))
        return fmt::format("call {} rank {}", call, rank);
  }
  return "";
}

/// Call by call other pairs speak; some say nothing, and some only listen.
inline std::string exchanges(Comm& comm) {
  for (int call = 0; call < 20; ++call) {
    auto speaks = [&](int from, int to) { return (from * 5 + to * 3 + call) % 3 != 0; };
    std::vector<Bytes> out(comm.size()), in(comm.size());
    std::vector<Comm::Part> send, receive;
    for (int peer = 0; peer < comm.size(); ++peer) {
      if (speaks(comm.rank(), peer)) send.push_back({peer, out[peer] = letter(comm.rank(), peer, call)});
      if (speaks(peer, comm.rank())) {
        in[peer].resize(letter(peer, comm.rank(), call).size());
        receive.push_back({peer, in[peer]});
      }
    }
    if (auto status = comm.exchange(send, receive, soon()); !status.ok()) return status.error().text();
    for (const auto& part : receive)
      if (in[part.rank] != letter(part.rank, comm.rank(), call)) return fmt::format("call {} from {}", call, part.rank);
  }
  return "";
}

/// More than any buffer on the way holds, round the circle and back.
inline std::string exchanges_much(Comm& comm) {
  int next = (comm.rank() + 1) % comm.size(), previous = (comm.rank() + comm.size() - 1) % comm.size();
  Bytes out(3 * MiB + 1, std::byte(comm.rank())), in(out.size());
  Comm::Part send{next, out}, receive{previous, in};
  if (auto status = comm.exchange({&send, 1}, {&receive, 1}, soon()); !status.ok()) return status.error().text();
  return expect(in == Bytes(in.size(), std::byte(previous)), "other bytes came than were sent");
}

inline std::string keeps_channels_apart(Comm& comm) {
  auto twin = comm.clone();
  if (!twin.ok()) return twin.error().text();
  auto grandchild = (*twin)->clone();
  if (!grandchild.ok()) return grandchild.error().text();
  // A rank that is ahead on one channel does not disturb another.
  std::vector<Comm*> channels{&comm, twin->get(), grandchild->get()};
  for (int call = 0; call < 3; ++call)
    for (size_t i = 0; i < channels.size(); ++i) {
      auto all = channels[i]->all_gather(letter(comm.rank(), static_cast<int>(i), call), soon());
      if (!all.ok()) return all.error().text();
      for (int rank = 0; rank < comm.size(); ++rank)
        if ((*all)[rank] != letter(rank, static_cast<int>(i), call)) return fmt::format("channel {}", i);
    }
  return "";
}

/// The upper half of the ranks fail: all get the error of the lowest of them, with its fields, and the Comm stays usable.
inline std::string agrees(Comm& comm) {
  if (auto text = expect_ok(agree(comm, {}, soon())); !text.empty()) return text;
  Status mine;
  if (comm.rank() >= comm.size() / 2)
    mine = fail(Code::kCorrupt, fmt::format("rank {} says", comm.rank()))
               .at_path("p")
               .at_tensor("t")
               .at_offset(5)
               .with_hint("h");
  auto all = agree(comm, mine, soon());
  if (all.ok()) return "agreed though ranks had failed";
  const Error& error = all.error();
  bool same = error.code == Code::kCorrupt && error.message == fmt::format("rank {} says", comm.size() / 2) &&
              error.path == "p" && error.tensor == "t" && error.offset == 5 && error.hint == "h";
  if (!same) return "another error: " + error.text();
  return expect_ok(agree(comm, {}, soon()));
}

inline std::string refuses_bad_parts(Comm& comm) {
  Bytes four(4), five(5);
  Comm::Part nobody{comm.size(), four}, mine{comm.rank(), four}, longer{comm.rank(), five};
  std::vector<Comm::Part> twice{mine, mine};
  auto code = [&](std::span<const Comm::Part> send, std::span<const Comm::Part> receive) {
    auto own = comm.clone();  // a channel that refuses is of no more use
    if (!own.ok()) return Code::kInternal;
    Status status = (*own)->exchange(send, receive, soon());
    return status.ok() ? Code::kInternal : status.error().code;
  };
  bool good = code({&nobody, 1}, {}) == Code::kInvalidArgument && code({}, {&nobody, 1}) == Code::kInvalidArgument &&
              code({&mine, 1}, {&longer, 1}) == Code::kInvalidArgument &&
              code({&mine, 1}, {}) == Code::kInvalidArgument && code(twice, twice) == Code::kInvalidArgument;
  return expect(good, "took parts that cannot be");
}

/// The last rank sends less than was agreed: everybody learns of it.
inline std::string tells_of_other_sizes(Comm& comm) {
  if (comm.size() == 1) return "";
  auto own = comm.clone();
  if (!own.ok()) return own.error().text();
  int last = comm.size() - 1;
  Bytes bytes(comm.rank() == last ? 3 : 4), in(4);
  std::vector<Comm::Part> send, receive;
  if (comm.rank() == last) send.push_back({0, bytes});
  if (comm.rank() == 0) receive.push_back({last, in});
  auto status = (*own)->exchange(send, receive, soon());
  if (status.ok()) status = agree(**own, {}, soon());
  if (status.ok()) return "nobody noticed";
  auto text = status.error().text();
  return expect(text.find(fmt::format("rank {} sent rank 0", last)) != text.npos && text.find("3 bytes") != text.npos,
                text);
}

/// The last rank cannot go on: the others, who wait for it, learn why.
inline std::string tells_who_abandons(Comm& comm) {
  auto own = comm.clone();
  if (!own.ok()) return own.error().text();
  int last = comm.size() - 1;
  if (comm.rank() == last) (*own)->abandon(fail(Code::kResourceExhausted, "no more room").at_tensor("t"));
  Bytes in(4);
  Comm::Part part{last, in};
  auto status = comm.size() > 1 ? (*own)->exchange({}, {&part, 1}, soon()) : agree(**own, {}, soon());
  if (status.ok()) return "nobody learned of it";
  const Error& error = status.error();
  return expect(error.code == Code::kResourceExhausted && error.message == "no more room" && error.tensor == "t",
                error.text());
}

/// Rank 1 is late: all others give up in time and name it, and it learns of that when it comes.
inline std::string names_who_is_slow(Comm& comm) {
  if (comm.size() == 1) return "";
  auto own = comm.clone();
  if (!own.ok()) return own.error().text();
  bool slow = comm.rank() == 1;
  if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(700));
  auto began = std::chrono::steady_clock::now();
  auto all = (*own)->all_gather({}, deadline_in(std::chrono::milliseconds(slow ? 20000 : 300)));
  Status outcome = all.ok() ? agree(**own, {}, soon()) : Status(all.error());  // the slow one finds the others' letters
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (outcome.ok()) return "nobody noticed";
  const Error& error = outcome.error();
  bool named = error.code == Code::kUnavailable && error.message == "rank 1 did not answer in time";
  if (!named) return error.text();
  auto again = (*own)->all_gather({}, soon());
  if (again.ok() || again.error().message != error.message) return "works again";
  return expect(seconds < 5, fmt::format("took {} s", seconds));
}

}  // namespace comm_checks

inline std::vector<CommCheck> comm_suite() {
  using namespace comm_checks;
  return {{"gathers", gathers},
          {"exchanges", exchanges},
          {"exchanges_much", exchanges_much},
          {"keeps_channels_apart", keeps_channels_apart},
          {"agrees", agrees},
          {"refuses_bad_parts", refuses_bad_parts},
          {"tells_of_other_sizes", tells_of_other_sizes},
          {"tells_who_abandons", tells_who_abandons},
          {"names_who_is_slow", names_who_is_slow}};
}

}  // namespace shardwright::testing_support
