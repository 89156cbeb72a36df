// What all ranks of a save do, whatever becomes of it.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "shardwright/base/byte_reader.h"
#include "shardwright/base/checksum.h"
#include "shardwright/base/error_bytes.h"
#include "shardwright/engine/rank_store.h"
#include "shardwright/engine/save_ranks.h"
#include "shardwright/engine/saved_layout.h"
#include "shardwright/engine/select.h"
#include "shardwright/engine/share.h"
#include "shardwright/store/staging.h"

namespace shardwright {
namespace {

/// Objects that rank 0 has created: whoever creates one here opens it.
class SharedTransaction : public Transaction {
 public:
  explicit SharedTransaction(Transaction& base) : base_(base) {}
  std::string token() const override { return base_.token(); }
  Result<std::unique_ptr<Writer>> create(std::string_view key, uint64_t size_bytes) override {
    return base_.open(key, size_bytes);
  }
  Result<std::unique_ptr<Writer>> open(std::string_view key, uint64_t size_bytes) override {
    return base_.open(key, size_bytes);
  }
  Status commit(const Publication&) override { return fail(Code::kInternal, "commit by a share"); }

 private:
  Transaction& base_;
};

/// The same on every rank.
Status check_requests(std::span<const Bytes> all) {
  std::vector<Json> requests;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    auto json = parse_json(text_of(all[rank]));
    if (!json.ok() || !json->is_object())
      return fail(Code::kInvalidArgument, fmt::format("rank {} does something else than save", rank));
    requests.push_back(std::move(*json));
    for (const auto& [name, value] : requests.front().items()) {
      Json other = requests.back().value(name, Json());
      if (other != value)
        return fail(Code::kInvalidArgument, fmt::format("rank {} asks for something else than rank 0", rank))
            .with_found(name + " " + other.dump())
            .with_expected(value.dump())
            .with_hint("all ranks save to one target, with the same options");
    }
  }
  return {};
}

/// How rank 0's answer begins: who writes.
constexpr std::string_view kTogether = "T", kAlone = "A", kOwn = "O";

using Lead = std::function<Result<Bytes>(const Gathered& all, const Fill& fill)>;

/// One rank's part in a save.
class RankSave {
 public:
  RankSave(const SharedSave& save, const JobOptions& options, Comm& comm)
      : save_(save), mine_(save.tensors), options_(options), comm_(comm) {
    calls_.produce = save.calls.produce;
    calls_.keep_going = [&](uint64_t done, uint64_t total) {
      return !options_.progress || options_.progress("copy", done, total);
    };
  }

  Result<SharedOutcome> run(const Lead& make) {
    SHARDWRIGHT_TRY(gather());
    auto told = comm_.rank() == 0 ? lead(make) : follow();
    if (!told.ok()) return std::move(told.error());
    return SharedOutcome{std::move(*told), written_bytes_};
  }

 private:
  Deadline soon() const { return deadline_in(options_.wait); }
  Status own() const { return save_.own ? save_.own() : Status(); }
  Status settle(const Status& mine) {
    Status stopped = own();
    return agree(comm_, stopped.ok() ? mine : stopped, soon());
  }

  /// Everybody's tensors, and what is to become of them: the same on every rank.
  Status gather() {
    Status checked;
    if (!mine_.objects().empty())
      checked = fail(Code::kUnsupported, "tensors that lie in files are saved by one process");
    SHARDWRIGHT_TRY(settle(checked));
    Bytes request = bytes_of(save_.request.dump(-1, ' ', false, Json::error_handler_t::replace));
    SHARDWRIGHT_ASSIGN(auto requests, comm_.all_gather(request, soon()));
    SHARDWRIGHT_TRY(check_requests(requests));
    SHARDWRIGHT_ASSIGN(all_.extras, comm_.all_gather(save_.extra, soon()));
    SHARDWRIGHT_ASSIGN(auto all, comm_.all_gather(mine_.serialize(), soon()));
    std::vector<Catalog> catalogs;
    for (const auto& bytes : all) {
      SHARDWRIGHT_ASSIGN(auto catalog, Catalog::deserialize(bytes));
      catalogs.push_back(std::move(catalog));
    }
    SHARDWRIGHT_ASSIGN(all_.tensors, merge_catalogs(catalogs));
    SHARDWRIGHT_ASSIGN(selected_, select_tensors(merged_, save_.select));
    return save_.hash ? gather_hashes() : Status();
  }

  /// Each rank hashes what it would write.
  Status gather_hashes() {
    auto writers = assign_writers(merged_, comm_.size());
    std::vector<std::pair<TensorId, Box>> boxes;
    for (TensorId id = 0; id < merged_.size(); ++id)
      for (const OwnedBox& owned : writers[id])
        if (owned.rank == comm_.rank()) boxes.emplace_back(mine_.find(merged_.spec(id).name).value_or(0), owned.box);
    Bytes hashes;
    for (const auto& hash : hash_boxes(mine_, boxes)) append_sized(hashes, hash);
    SHARDWRIGHT_ASSIGN(auto all, comm_.all_gather(hashes, soon()));
    std::vector<ByteReader> readers(all.begin(), all.end());
    for (const auto& owned : writers) {
      auto& hashed = all_.boxes.emplace_back();
      for (const OwnedBox& one : owned)
        hashed.push_back({one.box, std::string(readers[static_cast<size_t>(one.rank)].text())});
    }
    return {};
  }

  /// Rank 0 checks the target and makes the files; then it writes as all do.
  Result<Bytes> lead(const Lead& make) {
    bool begun = false;
    auto result =
        make(all_, [&](Draft& draft, const Format& format, const WriteOptions& write, Transaction& transaction) {
          begun = true;
          return fill(draft, format, write, transaction);
        });
    if (Status stopped = result.ok() ? Status() : own(); !stopped.ok()) result = stopped.error();
    Status outcome = result.ok() ? Status() : Status(result.error());
    if (!begun) {
      SHARDWRIGHT_TRY(settle(outcome));
      SHARDWRIGHT_TRY(broadcast(comm_, {}, soon()));  // nothing is to be written
    } else if (!result.ok() && told_) {
      return result;  // the others have left already
    }
    // From here on rank 0 waits for nobody: what is committed is saved, whoever is lost by now.
    auto told = broadcast(comm_, result.ok() ? Bytes{} : bytes_of_error(result.error()), soon());
    if (told.ok() && result.ok()) (void)broadcast(comm_, *result, soon());
    return result;
  }

  /// Every other rank.
  Result<Bytes> follow() {
    SHARDWRIGHT_TRY(settle({}));  // rank 0 has checked the target
    SHARDWRIGHT_ASSIGN(auto token, broadcast(comm_, {}, soon()));
    if (!token.empty()) SHARDWRIGHT_TRY(follow(text_of(token)));
    SHARDWRIGHT_ASSIGN(auto error, broadcast(comm_, {}, soon()));
    if (!error.empty()) return error_from_bytes(error);
    return broadcast(comm_, {}, soon());
  }

  Result<Executed> fill(Draft& draft, const Format& format, const WriteOptions& write, Transaction& transaction) {
    told_ = true;  // of whatever goes wrong until all have written
    SHARDWRIGHT_TRY(settle({}));
    SHARDWRIGHT_TRY(broadcast(comm_, bytes_of(transaction.token()), soon()));
    SHARDWRIGHT_TRY(settle({}));  // all see it
    if (!draft.objects().empty() && draft.rank_of(0)) return fill_own(draft, format, write, transaction);
    auto outline = outline_of(draft);
    if (!outline) return fill_alone(draft, transaction);
    SHARDWRIGHT_TRY(settle(create_all(*outline, transaction)));
    Bytes message = bytes_of(kTogether);
    std::ranges::copy(outline->to_bytes(), std::back_inserter(message));
    SHARDWRIGHT_TRY(broadcast(comm_, message, soon()));
    std::vector<Receipt> receipts;
    SHARDWRIGHT_TRY(settle(write_share(*outline, transaction, receipts)));
    SHARDWRIGHT_ASSIGN(auto all, gather_receipts(receipts, outline->objects.size()));
    auto sums = sums_of_payloads(selected_.want, *outline, all);
    Executed done;
    for (ObjectId object = 0; object < outline->objects.size(); ++object) {
      SHARDWRIGHT_ASSIGN(auto writer, transaction.open(outline->objects[object].key, outline->objects[object].size));
      SHARDWRIGHT_TRY(complete(draft, *outline, object, *writer, sums, done.receipts));
    }
    return done;
  }

  /// Every rank writes objects of its own.
  Result<Executed> fill_own(Draft& draft, const Format& format, const WriteOptions& write, Transaction& transaction) {
    SHARDWRIGHT_TRY(settle({}));
    Bytes message = bytes_of(kOwn);
    append_sized(message, format.name);
    append_sized(message, write.name);
    append_le(message, write.max_shard_bytes);
    append_le(message, write.time_ns);
    for (const auto& object : draft.objects()) append_sized(message, object.key);
    SHARDWRIGHT_TRY(broadcast(comm_, message, soon()));
    auto receipts = write_own(draft, transaction);
    SHARDWRIGHT_TRY(settle(receipts.ok() ? Status() : Status(receipts.error())));
    Executed done;
    SHARDWRIGHT_ASSIGN(done.receipts, gather_receipts(*receipts, draft.objects().size()));
    return done;
  }

  Status follow_own(View message, Transaction& transaction) {
    auto receipts = [&]() -> Result<std::vector<Receipt>> {
      ByteReader in(message);
      const Format* format = find_format(in.text());
      WriteOptions write;
      write.name = in.text();
      write.max_shard_bytes = in.number<uint64_t>();
      write.time_ns = in.number<uint64_t>();
      std::vector<std::string_view> keys;
      while (!in.bad && !in.at_end()) keys.push_back(in.text());
      if (in.bad || format == nullptr || format->draft == nullptr)
        return fail(Code::kInternal, "what rank 0 says cannot be read");
      write.strict = save_.strict;
      write.settings = save_.settings;
      write.held = held_of(merged_, selected_, comm_.size());
      if (save_.layout) {
        SHARDWRIGHT_ASSIGN(write.shardings, shardings_by(*save_.layout, selected_.want));
      }
      SHARDWRIGHT_ASSIGN(auto draft, format->draft(selected_.want, write));
      std::vector<ObjectId> objects;  // those of rank 0's draft, by the same numbers
      for (ObjectId object = 0; object < draft->objects().size() && objects.size() < keys.size(); ++object)
        if (draft->objects()[object].key == keys[objects.size()]) objects.push_back(object);
      if (objects.size() != keys.size()) return fail(Code::kInternal, "this rank would write other files than rank 0");
      PartDraft part(*draft, std::move(objects));
      return write_own(part, transaction);
    }();
    SHARDWRIGHT_TRY(settle(receipts.ok() ? Status() : Status(receipts.error())));
    return tell_receipts(*receipts);
  }

  /// This rank's objects, of what it holds.
  Result<std::vector<Receipt>> write_own(Draft& draft, Transaction& transaction) {
    std::vector<ObjectId> objects;
    for (ObjectId object = 0; object < draft.objects().size(); ++object)
      if (draft.rank_of(object) == comm_.rank()) objects.push_back(object);
    PartDraft own(draft, std::move(objects));
    if (own.objects().empty()) return std::vector<Receipt>();
    std::vector<TensorId> origin(selected_.want.size());
    for (TensorId id = 0; id < origin.size(); ++id)
      origin[id] = mine_.find(merged_.spec(selected_.origin.empty() ? id : selected_.origin[id]).name).value_or(0);
    SHARDWRIGHT_ASSIGN(auto plan, plan_write(mine_, own, origin, options_.plan));
    SHARDWRIGHT_ASSIGN(auto executed, execute(plan, {nullptr, &own, &transaction}, calls_));
    written_bytes_ += plan.summary.work_bytes;
    for (auto& receipt : executed.receipts) receipt.place.object = own.number(receipt.place.object);
    return std::move(executed.receipts);
  }

  /// Objects that must be written from front to back: rank 0 does it, and asks the others for what they hold.
  Result<Executed> fill_alone(Draft& draft, Transaction& transaction) {
    RankStore others(comm_, options_.wait);
    auto all = others.readable(merged_, mine_);
    SHARDWRIGHT_TRY(settle(all.ok() ? Status() : Status(all.error())));
    SHARDWRIGHT_TRY(broadcast(comm_, bytes_of(kAlone), soon()));
    Calls calls = calls_;
    if (calls.produce)
      calls.produce = [&](TensorId id, const Box& box, MutableView into) {
        return calls_.produce(mine_.find(merged_.spec(id).name).value_or(0), box, into);
      };
    // Workers read, and wait; Ctrl-C is heard by the thread that called, between tasks.
    Watch watch = comm_.set_watch({});
    auto done = [&]() -> Result<Executed> {
      SHARDWRIGHT_ASSIGN(auto plan, plan_write(*all, draft, selected_.origin, options_.plan));
      written_bytes_ += plan.summary.work_bytes;
      return execute(plan, {&others, &draft, &transaction}, calls);
    }();
    comm_.set_watch(std::move(watch));
    Status dismissed = others.dismiss();
    SHARDWRIGHT_TRY(settle(done.ok() ? dismissed : Status(done.error())));
    told_ = false;
    return done;
  }

  /// None stays open: there may be more than a process may have.
  static Status create_all(const Outline& outline, Transaction& transaction) {
    for (const auto& object : outline.objects) SHARDWRIGHT_TRY(transaction.create(object.key, object.size));
    return {};
  }

  Status follow(std::string_view token) {
    auto transaction = join(token);
    SHARDWRIGHT_TRY(settle(transaction.ok() ? Status() : Status(transaction.error())));
    SHARDWRIGHT_TRY(settle({}));  // rank 0 has made the files
    SHARDWRIGHT_ASSIGN(auto answer, broadcast(comm_, {}, soon()));
    View message = View(answer).subspan(1);
    std::string_view who = text_of(View(answer).first(1));
    if (who == kOwn) return follow_own(message, **transaction);
    if (who == kAlone) return settle(serve(comm_, merged_, mine_, options_.wait));
    Status status = [&]() -> Status {
      SHARDWRIGHT_ASSIGN(outline_, Outline::from_bytes(message));
      return write_share(outline_, **transaction, receipts_);
    }();
    SHARDWRIGHT_TRY(settle(status));
    return tell_receipts(receipts_);
  }

  Result<std::unique_ptr<Transaction>> join(std::string_view token) const {
    auto unseen = fail(Code::kNotFound, "this rank does not see what rank 0 has begun to write")
                      .at_path(std::string(token))
                      .with_hint("save to a directory that all ranks share");
    SHARDWRIGHT_ASSIGN(auto store, open_file_store("/"));
    auto transaction = store->join(token);
    if (!transaction.ok() && transaction.error().code == Code::kNotFound) return unseen;
    std::error_code error;
    std::string_view parent = token.substr(0, token.rfind('/', token.rfind(detail::kStagingPrefix)));
    if (!save_.directory.empty() && !std::filesystem::equivalent(save_.directory, parent, error)) return unseen;
    return transaction;
  }

  /// This rank's boxes into the objects.
  Status write_share(const Outline& outline, Transaction& transaction, std::vector<Receipt>& receipts) {
    auto writers = assign_writers(merged_, comm_.size());
    std::vector<std::vector<Box>> boxes(selected_.want.size());
    std::vector<TensorId> origin(selected_.want.size());
    for (TensorId id = 0; id < selected_.want.size(); ++id) {
      TensorId from = selected_.origin.empty() ? id : selected_.origin[id];
      origin[id] = mine_.find(merged_.spec(from).name).value_or(0);
      for (const OwnedBox& owned : writers[merged_.same_as(from)])
        if (owned.rank == comm_.rank()) boxes[id].push_back(owned.box);
    }
    SHARDWRIGHT_ASSIGN(auto draft, ShareDraft::create(selected_.want, outline, boxes));
    SHARDWRIGHT_ASSIGN(auto plan, plan_write(mine_, draft, origin, options_.plan));
    SharedTransaction shared(transaction);
    SHARDWRIGHT_ASSIGN(auto executed, execute(plan, {nullptr, &draft, &shared}, calls_));
    written_bytes_ += plan.summary.work_bytes;
    for (auto& receipt : executed.receipts) receipt.place.object = draft.outline_object(receipt.place.object);
    receipts = std::move(executed.receipts);
    return {};
  }

  /// What each rank has written of the objects; from then on rank 0 goes on alone, and tells.
  Result<std::vector<Receipt>> gather_receipts(std::span<const Receipt> mine, size_t objects) {
    SHARDWRIGHT_ASSIGN(auto all, comm_.all_gather(bytes_of_receipts(mine), soon()));
    told_ = false;
    return receipts_of_all(all, objects);
  }
  Status tell_receipts(std::span<const Receipt> mine) {
    auto all = comm_.all_gather(bytes_of_receipts(mine), soon());
    return all.ok() ? Status() : Status(all.error());
  }

  /// Literals, late bytes and the end of one object.
  static Status complete(Draft& draft, const Outline& outline, ObjectId object, Writer& writer,
                         const std::vector<PayloadSum>& sums, std::vector<Receipt>& all) {
    auto segments = draft.segments(object);
    std::vector<Receipt> receipts;
    std::vector<WriteOp> literals;
    for (const Segment& segment : segments) {
      if (segment.type == Segment::kLate) continue;
      Receipt receipt{
          segment.tensor, segment.piece, {Place::kExtent, -1, object, segment.offset, segment.length}, 0, 0};
      if (segment.type == Segment::kLiteral) {
        literals.push_back({segment.offset, segment.literal});
        receipt.crc32c = crc32c(segment.literal);
        receipt.crc32 = outline.wants_crc32 ? crc32(segment.literal) : 0;
      } else {
        receipt.crc32c = sums[segment.tensor].crc32c;
        receipt.crc32 = sums[segment.tensor].crc32;
      }
      receipts.push_back(receipt);
    }
    SHARDWRIGHT_TRY(writer.write(literals));
    for (size_t i = 0; i < segments.size(); ++i) {
      if (segments[i].type != Segment::kLate) continue;
      SHARDWRIGHT_ASSIGN(Bytes bytes, draft.late(object, i, receipts));
      WriteOp op{segments[i].offset, bytes};
      SHARDWRIGHT_TRY(writer.write({&op, 1}));
    }
    std::ranges::move(receipts, std::back_inserter(all));
    return writer.finish(outline.objects[object].size);
  }

  const SharedSave& save_;
  const Catalog& mine_;
  Calls calls_;
  const JobOptions& options_;
  Comm& comm_;
  Gathered all_;
  const Catalog& merged_ = all_.tensors;
  Selected selected_;
  Outline outline_;
  std::vector<Receipt> receipts_;
  uint64_t written_bytes_ = 0;
  bool told_ = false;
};

}  // namespace

Result<SharedOutcome> save_together(const SharedSave& save, const JobOptions& options, Comm& comm, const Lead& lead) {
  return RankSave(save, options, comm).run(lead);
}

}  // namespace shardwright
