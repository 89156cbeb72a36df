#include "python/long_work.h"

#include "python/text.h"

namespace nb = nanobind;

namespace shardwright::python {

LongWork::LongWork(nb::object progress, uint64_t memory_bytes, int threads) : progress_(std::move(progress)) {
  options_.plan.memory_bytes = memory_bytes;
  options_.plan.threads = threads;
  options_.progress = [this](std::string_view phase, uint64_t done, uint64_t total) {
    return keep_going(phase, done, total);
  };
}

LongWork::~LongWork() = default;

Status LongWork::call(const std::function<void()>& callback) {
  nb::gil_scoped_acquire held;
  try {
    callback();
    return {};
  } catch (nb::python_error& error) {
    std::string said = error.what();  // for other ranks: its last line; here it is raised again
    if (!raised_) raised_.emplace(std::move(error));
    return fail(Code::kAborted, "a callback raised an exception").with_found(said.substr(said.rfind('\n') + 1));
  } catch (const nb::cast_error&) {
    // Only the answer of a callback is cast; a wrong one is the caller's mistake and named there.
    return fail(Code::kInvalidArgument, "a callback returned something of the wrong type");
  }
}

Status LongWork::watch() {
  return call([] {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  });
}

bool LongWork::keep_going(std::string_view phase, uint64_t done, uint64_t total) {
  bool go_on = true;
  auto called = call([&] {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (progress_.is_none()) return;
    nb::object answer = progress_(to_str(phase), done, total);
    go_on = answer.ptr() != Py_False;
  });
  return called.ok() && go_on;
}

void LongWork::rethrow() {
  if (raised_) throw std::move(*std::exchange(raised_, std::nullopt));
}

}  // namespace shardwright::python
