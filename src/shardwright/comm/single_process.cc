#include "shardwright/comm/comm.h"

namespace shardwright {
namespace {

Error bad_part(const char* what, int rank) {
  return fail(Code::kInvalidArgument, std::string("exchange ") + what + " with a rank that does not exist")
      .with_found("rank " + std::to_string(rank))
      .with_expected("rank 0, the only one");
}

class SingleProcess : public Comm {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Result<std::unique_ptr<Comm>> clone() override { return single_process(); }
  void abandon(const Error& why) override { failed_ = why; }
  Watch set_watch(Watch) override { return {}; }

  // Nobody is waited for, so no deadline can pass.
  Result<std::vector<Bytes>> all_gather(View mine, Deadline) override {
    if (failed_) return *failed_;
    return std::vector<Bytes>{Bytes(mine.begin(), mine.end())};
  }

  Status exchange(std::span<const Part> send, std::span<const Part> receive, Deadline) override {
    if (failed_) return *failed_;
    for (const Part& part : send)
      if (part.rank != 0) return bad_part("sends", part.rank);
    for (const Part& part : receive)
      if (part.rank != 0) return bad_part("receives", part.rank);
    if (send.size() > 1 || receive.size() > 1)
      return fail(Code::kInvalidArgument, "exchange has more than one part for a peer and direction");
    const uint64_t sent = send.empty() ? 0 : send[0].bytes.size();
    const uint64_t received = receive.empty() ? 0 : receive[0].bytes.size();
    if (sent != received)
      return fail(Code::kInvalidArgument, "exchange sends and receives different sizes")
          .with_found(std::to_string(sent) + " bytes sent")
          .with_expected(std::to_string(received) + " bytes");
    if (sent > 0) std::memmove(receive[0].bytes.data(), send[0].bytes.data(), sent);  // the two may overlap
    return {};
  }

 private:
  std::optional<Error> failed_;
};

}  // namespace

std::unique_ptr<Comm> single_process() { return std::make_unique<SingleProcess>(); }

}  // namespace shardwright
