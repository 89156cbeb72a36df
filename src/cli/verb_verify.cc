/// shardwright verify: what is wrong with a checkpoint, finding by finding.
#include <fmt/format.h>

#include "cli/json_output.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "shardwright/base/error_table.h"
#include "shardwright/base/text.h"

namespace shardwright::cli {
namespace {

void print_summary(Output& output, const VerifyRequest& request, const VerifySummary& summary, double seconds) {
  if (output.json()) {
    json_line(output, Json{{"type", "summary"},
                           {"path", request.path},
                           {"tensors", summary.tensors},
                           {"bytes_checked", summary.bytes_checked},
                           {"findings", summary.findings},
                           {"manifest", summary.manifest},
                           {"full", request.full},
                           {"seconds", seconds},
                           {"peak_memory_bytes", summary.peak_memory_bytes}});
    return;
  }
  if (output.quiet()) return;
  std::string what = counted(summary.tensors, "tensor");
  if (request.full) {
    what += fmt::format(", {} read in {}, peak memory {}, {}", format_bytes(summary.bytes_checked),
                        format_seconds(seconds), format_bytes(summary.peak_memory_bytes),
                        summary.manifest ? "checked against the manifest" : "no manifest to check them against");
  } else {
    what += ", headers and sizes only (--full reads all bytes)";
  }
  output.line(summary.findings == 0 ? output.styled("sound", Style::kGreen) + "  " + what
                                    : output.styled(counted(summary.findings, "finding"), Style::kRed) + "  " + what);
}

}  // namespace

Result<int> run_verify(Invocation& invocation) {
  Output& output = invocation.output;
  VerifyRequest request;
  request.path = invocation.arguments.text("PATH");
  request.against = invocation.arguments.text("against");
  request.full = invocation.arguments.has("full") || !request.against.empty();
  double seconds = 0;
  Result<VerifySummary> verified = [&] {
    Progress progress(output, true);
    Result<VerifySummary> result =
        verify_checkpoint(request, progress.attach(invocation.job), [&](const Error& finding) {
          progress.erase();
          print_finding(output, finding);
        });
    seconds = progress.seconds();
    return result;
  }();
  if (!verified.ok()) return std::move(verified.error());
  print_summary(output, request, *verified, seconds);
  return verified->findings == 0 ? kExitOk : kExitNo;
}

}  // namespace shardwright::cli
