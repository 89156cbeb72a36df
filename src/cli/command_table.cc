#include "cli/command_table.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <vector>

#include "shardwright/base/error_table.h"

namespace shardwright::cli {
namespace {

constexpr std::string_view kListAlias[] = {"list"};
constexpr std::string_view kInspectAlias[] = {"inspect"};
constexpr std::string_view kCopyAliases[] = {"cp", "convert"};
constexpr std::string_view kCheckAlias[] = {"check"};
constexpr std::string_view kManifestAlias[] = {"manifest"};

constexpr OptionRow kGlobal[] = {
    {"", "json", "", "print JSON: one value, or one object a line where results come bit by bit"},
    {"q", "quiet", "", "print only what was asked for: names, one a line; no totals, warnings or progress"},
    {"v", "verbose", "", "say more"},
    {"", "progress", "WHEN", "show progress on stderr; auto: when it is a terminal", "auto|always|never"},
    {"", "color", "WHEN", "colour; auto: on a terminal, unless NO_COLOR is set", "auto|always|never"},
    {"", "threads", "N", "workers that read and write (default: as many as pay, 2 to 4)"},
    {"", "memory", "SIZE", "hard limit of the engine's buffers (default 256MiB)"},
    {"", "isolate", "", "read HDF5 metadata in a child process with limits; for files from strangers"},
    {"h", "help", "", "print help"},
    {"", "version", "", "print the version"},
};

constexpr ArgumentRow kPath[] = {{"PATH", "a checkpoint: a file, an index or a directory"}};
constexpr ArgumentRow kLsArguments[] = {
    {"PATH", "a checkpoint: a file, an index or a directory"},
    {"GLOB", "only tensors whose name matches; * crosses . and /", false, Completes::kTensor},
};
constexpr ArgumentRow kShowArguments[] = {
    {"PATH", "a checkpoint: a file, an index or a directory"},
    {"TENSOR", "its name", true, Completes::kTensor},
};
constexpr ArgumentRow kCopyArguments[] = {
    {"SOURCE", "the checkpoint to read"},
    {"TARGET", "the file, index or directory to write; its name decides the format unless --to does"},
};
constexpr ArgumentRow kOcdbtArguments[] = {
    {"ACTION", "ls, check, dump or merge", true, Completes::kNothing, "ls|check|dump|merge"},
    {"PATH", "the directory with manifest.ocdbt"},
};
constexpr ArgumentRow kDiffArguments[] = {{"A", "one checkpoint"}, {"B", "the other, in any format"}};
constexpr ArgumentRow kReindexArguments[] = {{"DIRECTORY", "the directory with the shards"}};
constexpr ArgumentRow kRunArguments[] = {{"ROOT", "the directory of a run, with a directory for each step in it"}};
constexpr ArgumentRow kRestoreArguments[] = {
    {"STEP", "ROOT, ROOT@NUMBER, ROOT@latest, or ROOT@best:METRIC[:max]"},
    {"TARGET", "the file, index or directory to write; its name decides the format unless --to does"},
};
constexpr ArgumentRow kCompletionArguments[] = {
    {"SHELL", "bash, zsh or fish", true, Completes::kNothing, "bash|zsh|fish"}};
constexpr ArgumentRow kHelpArguments[] = {{"VERB", "what to explain", false, Completes::kVerb}};

constexpr OptionRow kLsOptions[] = {
    {"l", "long", "", "also print the shard, the offset in it and what a tied name is tied to"},
    {"s", "sort", "KEY", "order; file: as in the file (default)", "file|name|size"},
    {"r", "reverse", "", "the other way round"},
    {"", "collapse", "", "one line for tensors that differ only in a layer number, with their count"},
    {"", "shards", "", "list files instead of tensors"},
};
constexpr OptionRow kShowOptions[] = {
    {"", "slice", "SLICE", "part of it, as NumPy has it: \"0:4,:\", \"-1\", \"::2\""},
    {"", "stats", "", "minimum, maximum, mean, and how many are NaN, infinite or zero"},
};
constexpr OptionRow kMesh = {"", "mesh", "MESH",
                             "axes and sizes, the first major: data=2,model=4; wins over the layout file's"};
constexpr OptionRow kLayout = {
    "", "layout", "FILE", "TOML or JSON: mesh, and rules from patterns to mesh axes", "", false, Completes::kPath};
constexpr OptionRow kMapOptions[] = {
    kMesh,
    kLayout,
    {"l", "long", "", "also print which box of each tensor every device holds"},
    {"", "svg", "FILE", "draw the mesh, the blocks of the tensor in most parts, and bytes per device", "", false,
     Completes::kPath},
};
constexpr OptionRow kCopyOptions[] = {
    {"", "to", "FORMAT", "format to write (see 'shardwright formats')", "", false, Completes::kFormat},
    {"", "max-shard-size", "SIZE", "largest shard (default: one file for a named file, else 5GB)"},
    {"", "dtype", "DTYPE", "cast floating tensors: bf16, float16, F32, ...", "", false, Completes::kDtype},
    {"", "option", "KEY=VALUE",
     "an option of the format written, may be repeated; orbax: compression=none|zstd[:LEVEL], zarr=2|3, api=v0|v1, "
     "item=NAME",
     "", true},
    {"", "include", "GLOB", "only tensors whose name matches; may be repeated", "", true},
    {"", "exclude", "GLOB", "without those; may be repeated", "", true},
    {"", "rename", "FILE", "JSON object from Python regular expression to replacement, applied in order", "", false,
     Completes::kPath},
    kMesh,
    kLayout,
    {"", "rank", "N", "write only what device N of the mesh holds, by --layout"},
    {"", "overwrite", "", "replace a checkpoint that is there"},
    {"", "strict", "", "a tensor larger than a shard is an error, not a warning"},
    {"", "manifest", "", "also write shardwright.manifest.json: checksums for 'verify --full'"},
    {"n", "dry-run", "", "print the plan and the files, write nothing"},
};
constexpr OptionRow kVerifyOptions[] = {
    {"", "full", "", "read all bytes, and check them against the manifest where there is one"},
    {"", "against", "MANIFEST", "a manifest that lies elsewhere; implies --full", "", false, Completes::kPath},
};
constexpr OptionRow kDiffOptions[] = {
    {"", "tolerance", "T", "values this near are the same: \"1e-3\" (relative), \"rel=1e-3,abs=1e-6\""},
    {"", "names-only", "", "compare names, dtypes and shapes, read no values"},
};
constexpr OptionRow kForgetOptions[] = {
    {"", "keep-last", "N", "the newest N"},
    {"", "keep-every", "N", "steps that are multiples of N"},
    {"", "keep-interval", "SECONDS", "the first, then each that is so much later than the one kept before it"},
    {"", "keep-best", "N:METRIC[:max]",
     "the best N by a metric, the smaller the better unless max is said; may be repeated", "", true},
    {"", "keep-step", "N", "this step; may be repeated", "", true},
    {"n", "dry-run", "", "say what would go, and why the others stay; remove nothing"},
};
constexpr OptionRow kPruneOptions[] = {
    {"", "older-than", "SECONDS", "for what carries no lock: nothing in it has changed for so long (default 3600)"},
    {"n", "dry-run", "", "say what would go, remove nothing"},
};
constexpr OptionRow kHashOptions[] = {{"", "write", "", "also write shardwright.manifest.json beside the checkpoint"}};
constexpr OptionRow kReindexOptions[] = {{"n", "dry-run", "", "say what would change, write nothing"}};

constexpr Command kCommands[] = {
    {"ls",
     kListAlias,
     Group::kLook,
     "list tensors",
     "Lists the tensors of a checkpoint: name, dtype, shape and size. Reads headers only.\n\n"
     "With --json: an array of {name, dtype, shape, nbytes, shard, offset}; offset is null when the tensor is encoded "
     "or in parts. "
     "With --collapse {name, count, dtype, shape, nbytes}, with --shards {file, tensors, nbytes}.",
     kLsArguments,
     kLsOptions,
     {{{"What is in it", "shardwright ls model.safetensors"},
       {"Where the attention weights lie", "shardwright ls -l model/ '*attn*weight'"},
       {"The layers of a large model at a glance", "shardwright ls --collapse model/"}}},
     run_ls},
    {"info",
     kInspectAlias,
     Group::kLook,
     "describe a checkpoint",
     "Prints format, number of tensors and parameters, sizes by dtype and by shard, tied names and metadata. Reads "
     "headers only.\n\n"
     "With --json: {path, format, tensors, parameters, nbytes, dtypes: {BF16: {tensors, nbytes}}, shards: [{file, "
     "tensors, nbytes}], "
     "ties: {alias: kept}, metadata, opaque: {name: class of what is no tensor}}. Ties count once in parameters and "
     "nbytes.",
     kPath,
     {},
     {{{"A directory with an index", "shardwright info model/"},
       {"A Keras archive", "shardwright info model.keras"},
       {"How many parameters", "shardwright info --json model/ | jq .parameters"}}},
     run_info},
    {"show",
     {},
     Group::kLook,
     "print values of a tensor",
     "Prints the values of one tensor as NumPy does, long ones in short form, and reads only what it prints.\n\n"
     "With --json: {name, dtype, shape, values}, the values nested lists, complete; NaN and infinities are strings. "
     "With --stats {name, dtype, shape, elements, min, max, mean, nan, infinite, zero}.",
     kShowArguments,
     kShowOptions,
     {{{"A tensor in short form", "shardwright show model.safetensors lm_head.weight"},
       {"Its first two rows", "shardwright show model.safetensors lm_head.weight --slice 0:2,:"},
       {"Is there a NaN?", "shardwright show model.safetensors lm_head.weight --stats"}}},
     run_show},
    {"diff",
     {},
     Group::kLook,
     "compare two checkpoints",
     "Compares two checkpoints of any formats by name, dtype, shape and value. Exit code 0: the same, 1: different, "
     "more: an error.\n\n"
     "With --json: an array of {name, change, max_abs_diff}; change is added, removed, dtype, shape or value.",
     kDiffArguments,
     kDiffOptions,
     {{{"Did the conversion change anything?", "shardwright diff model.safetensors model.weights.h5"},
       {"Within the rounding of bfloat16", "shardwright diff --tolerance rel=8e-3 model/ model-bf16/"},
       {"Which tensors were added", "shardwright diff --names-only old/ new/"}}},
     run_diff},
    {"verify",
     kCheckAlias,
     Group::kLook,
     "check a checkpoint",
     "Checks headers, sizes, the index against the headers both ways, and that every tensor is whole; with --full all "
     "bytes, and the "
     "manifest where there is one. Exit code 0: sound, 1: something was found.\n\n"
     "With --json: one object a line: {type: \"finding\", code, path, tensor, offset, found, expected, message}, then "
     "a summary "
     "{type: \"summary\", path, tensors, bytes_checked, findings, manifest, full, seconds, "
     "peak_memory_bytes}.",
     kPath,
     kVerifyOptions,
     {{{"After a download", "shardwright verify model/"},
       {"Every byte, against the manifest", "shardwright verify --full model/"},
       {"Against a manifest kept elsewhere", "shardwright verify --against model.manifest.json model/"}}},
     run_verify},
    {"hash",
     kManifestAlias,
     Group::kLook,
     "hash every tensor",
     "Prints a hash of every tensor's values (XXH3-128 in segments of 64 MiB), the same in every format and "
     "sharding.\n\n"
     "With --json: an array of {name, dtype, shape, hash}.",
     kPath,
     kHashOptions,
     {{{"Hashes of all tensors", "shardwright hash model/"},
       {"Leave a manifest for later checks", "shardwright hash --write model/"},
       {"Find tensors that are equal", "shardwright hash model/ | sort | uniq -D -w 32"}}},
     run_hash},
    {"map",
     {},
     Group::kLook,
     "show where every tensor goes on a mesh",
     "Prints for every tensor the rule that names it, its layout and the shape and size of its shards, then the bytes "
     "of every device, tensors "
     "without a rule, rules without a tensor, and every tensor that cannot be laid out. Reads headers only. Exit code "
     "0: all can be laid out, 1: "
     "not all.\n\n"
     "Without --mesh and --layout it is the layout that an Orbax checkpoint notes it was saved with.\n\n"
     "A layout file has mesh = {axis_names, shape}, match = \"search\", \"fullmatch\" or \"exact\", uneven = "
     "\"refuse\" or "
     "\"chunk\" (as torch), and "
     "rules, a table from Python regular expressions to one entry per dimension: an axis, a list of axes, or \"\" (in "
     "JSON also null). A name "
     "that is itself a rule takes that; two rules for one name are an error. A rule may also be a text: a Shardy "
     "attribute, a GSPMD string, or "
     "DTensor placements.\n\n"
     "With --json: {path, mesh: {axis_names, shape, devices, shardy}, match, tensors: [{name, dtype, shape, rule, "
     "partition_spec, shard_shape, "
     "shard_nbytes, even, replicas, gspmd, shardy, placements}], devices: [{device, nbytes}], unmatched: [{name, "
     "nbytes, large}], unused_rules, "
     "problems: [{tensor, message, found, expected, context}]}; with --long each tensor has boxes: [{start, extent}] "
     "by device. A tensor with a "
     "problem has its name, dtype and shape only.",
     kLsArguments,
     kMapOptions,
     {{{"Does it fit eight devices?", "shardwright map --mesh data=2,model=4 --layout layout.toml model/"},
       {"Who holds what of one tensor", "shardwright map --long --layout layout.toml model/ lm_head.weight"},
       {"As a picture", "shardwright map --layout layout.toml --svg layout.svg model/"}}},
     run_map},
    {"copy",
     kCopyAliases,
     Group::kMove,
     "copy, convert, change the shard size",
     "Copies a checkpoint into another format or shard size within the memory limit. All or nothing: the target "
     "appears when it is "
     "complete. Copying onto the source replaces it. Configuration and tokenizer files are carried along.\n\n"
     "With --to orbax --layout says which sharding the arrays are to have there, and cuts chunks by it. With --rank N "
     "TARGET is an ordinary checkpoint of local shapes: what device N of the mesh holds by --layout (see "
     "'map'). Its metadata "
     "'shardwright.part' has the whole shape and the start of every tensor.\n\n"
     "Without --to the name of TARGET decides: .safetensors, .weights.h5, .weights.json, .keras, .bin, .pt, .pth, else "
     "a directory of "
     "safetensors. "
     "Sizes: 5GB is 5*10^9 bytes, 5GiB is 5*2^30.\n\n"
     "With --json: {type: \"status\", ...} while it runs, at the end {type: \"summary\", source, target, format, "
     "tensors, shards, bytes_read, "
     "bytes_written, reread (bytes read for each that is needed: more than 1.0 where encoded chunks are read for a "
     "part "
     "of them, or again), seconds, peak_memory_bytes, "
     "warnings}; with --dry-run the same of type \"plan\", with files: [{file, size}].",
     kCopyArguments,
     kCopyOptions,
     {{{"Change the shard size", "shardwright copy --max-shard-size 2GB model/ model-2gb/"},
       {"To Keras, in bfloat16", "shardwright copy --dtype bf16 model/ model.weights.h5"},
       {"What would be written", "shardwright copy --dry-run model/ model.weights.json"}}},
     run_copy},
    {"ocdbt",
     {},
     Group::kLook,
     "look into an OCDBT database",
     "The database in which Orbax and TensorStore keep arrays: ls prints its keys with their sizes (-v: and where they "
     "lie), dump its manifest, versions and nodes as they are, one JSON object a line; check reads all of these, holds "
     "sums and ranges against each other, and exits with 1 when something is wrong; merge makes one database of those "
     "in ocdbt.process_* by reference, as Orbax does when all processes have written.\n\n"
     "With --json: ls an array of {key, size, file, offset}; check one {type: \"finding\", code, path, offset, found, "
     "expected, message} a line, then {type: \"summary\", path, keys, findings}; merge {type: \"summary\", path, keys, "
     "merged}.",
     kOcdbtArguments,
     {},
     {{{"Keys and sizes", "shardwright ocdbt ls step/default/"},
       {"Is it whole", "shardwright ocdbt check step/default/"},
       {"What is in its nodes", "shardwright ocdbt dump step/default/"}}},
     run_ocdbt},
    {"reindex",
     {},
     Group::kMove,
     "rebuild the index of a sharded checkpoint",
     "Writes the index anew from the headers of the shards, when it is lost or stale.\n\n"
     "With --json: {type: \"summary\" (or \"plan\"), index, tensors, shards, added, removed, moved}.",
     kReindexArguments,
     kReindexOptions,
     {{{"Rebuild it", "shardwright reindex model/"},
       {"What would change", "shardwright reindex --dry-run model/"},
       {"And check the result", "shardwright reindex model/ && shardwright verify model/"}}},
     run_reindex},
    {"steps",
     {},
     Group::kSteps,
     "list the steps of a training run",
     "Lists the steps below a directory, of this library's and of Orbax's managers, and what broken runs left there. A "
     "step is complete when that is "
     "proved: every file of its manifest is there and as long as it says; or it is committed, and its trees open.\n\n"
     "shared: of its size, what lies in files that other steps have too, which the disk has once; new: the rest.\n\n"
     "With --json: an array of {step, name, state, time, nbytes, new_nbytes, shared_nbytes, metrics, metadata, proof}; "
     "state is complete, pinned, "
     "partial or leftover (whose step is null).",
     kRunArguments,
     {},
     {{{"What is there", "shardwright steps run/"},
       {"Why a step does not count", "shardwright steps -v run/"},
       {"The best loss", "shardwright steps --json run/ | jq 'min_by(.metrics.loss).step'"}}},
     run_steps},
    {"forget",
     {},
     Group::kSteps,
     "remove steps that no rule keeps",
     "Removes complete steps that none of the rules keeps. The newest step and pinned ones always stay. At least one "
     "rule must be "
     "given.\n\n"
     "With --json: an array of {step, action, reasons, nbytes}; action is keep or remove.",
     kRunArguments,
     kForgetOptions,
     {{{"What would go", "shardwright forget --dry-run --keep-last 3 run/"},
       {"The last three, and every thousandth", "shardwright forget --keep-last 3 --keep-every 1000 run/"},
       {"The best two by accuracy", "shardwright forget --keep-best 2:accuracy:max run/"}}},
     run_forget},
    {"prune",
     {},
     Group::kSteps,
     "remove what broken runs left",
     "Removes saves that were never finished, steps that are not complete, and those set aside by a branch. What a "
     "living process is at "
     "stays.\n\n"
     "With --json: an array of {name, what, nbytes}.",
     kRunArguments,
     kPruneOptions,
     {{{"What would go", "shardwright prune --dry-run run/"},
       {"Nobody is writing there", "shardwright prune --older-than 0 run/"},
       {"All that is not a step", "shardwright prune run/ && shardwright steps run/"}}},
     run_prune},
    {"restore",
     {},
     Group::kSteps,
     "copy the tensors of a step",
     "Copies the tensors of a step of a run, by default of the newest complete one, into a checkpoint; else as "
     "'copy'.\n\n"
     "With --json: as 'copy'.",
     kRestoreArguments,
     kCopyOptions,
     {{{"The newest", "shardwright restore run/ model.safetensors"},
       {"Step 1000", "shardwright restore run/@1000 model/"},
       {"The best, in bfloat16", "shardwright restore --dtype bf16 run/@best:loss model/"}}},
     run_restore},
    {"formats",
     {},
     Group::kAbout,
     "list formats",
     "Lists the formats, how each is recognised, and what it can do.\n\n"
     "With --json: an array of {name, description, files, read, write, sharded, ties, metadata, subbyte}.",
     {},
     {},
     {{{"All formats", "shardwright formats"},
       {"As JSON", "shardwright formats --json"},
       {"Those that can be written", "shardwright formats --json | jq -r '.[] | select(.write) | .name'"}}},
     run_formats},
    {"completion",
     {},
     Group::kAbout,
     "print a completion script for a shell",
     "Prints a script that teaches the shell to complete verbs, options, files and tensor names.",
     kCompletionArguments,
     {},
     {{{"bash, for this session", "source <(shardwright completion bash)"},
       {"zsh", "shardwright completion zsh > ~/.zfunc/_shardwright"},
       {"fish", "shardwright completion fish > ~/.config/fish/completions/shardwright.fish"}}},
     run_completion},
    {"man",
     {},
     Group::kAbout,
     "print the manual page",
     "Prints the manual page as mdoc, made from the same table as the help texts.",
     {},
     {},
     {{{"Read it", "shardwright man | man -l -"},
       {"Install it", "shardwright man > ~/.local/share/man/man1/shardwright.1"},
       {"As HTML", "shardwright man | mandoc -T html > shardwright.html"}}},
     run_man},
    {"help",
     {},
     Group::kAbout,
     "explain a verb",
     "Prints the list of verbs, or the help of one.",
     kHelpArguments,
     {},
     {{{"All verbs", "shardwright help"},
       {"One verb", "shardwright help copy"},
       {"The same", "shardwright copy --help"}}},
     run_help},
};

}  // namespace

std::span<const Command> command_table() { return kCommands; }
std::span<const OptionRow> global_options() { return kGlobal; }

std::string_view group_title(Group group) {
  switch (group) {
    case Group::kLook: return "Look";
    case Group::kMove: return "Move";
    case Group::kSteps: return "Training runs";
    case Group::kAbout: break;
  }
  return "About";
}

const Command* find_command(std::string_view name) {
  for (const Command& command : kCommands) {
    if (command.name == name ||
        std::find(command.aliases.begin(), command.aliases.end(), name) != command.aliases.end())
      return &command;
  }
  return nullptr;
}

std::string variable_name(const OptionRow& option) {
  if (option.name == "help" || option.name == "version") return "";
  std::string out = "SHARDWRIGHT_";
  for (char c : option.name) out += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

std::span<const ExitRow> exit_table() {
  static const std::vector<ExitRow> rows = [] {
    std::map<int, std::string> meanings = {{kExitOk, "done; for diff: the same; for verify: sound"},
                                           {kExitNo, "the answer is no: diff found a difference, verify a defect"},
                                           {kExitUsage, "the command line cannot be understood"},
                                           {kExitInterrupted, "interrupted; temporary files were removed"}};
    for (const ErrorRow& row : error_table()) {
      std::string& meaning = meanings[row.exit_code];
      meaning += (meaning.empty() ? "" : "; ") + std::string(row.meaning);
    }
    std::vector<ExitRow> out;
    for (auto& [code, meaning] : meanings) out.push_back({code, meaning});
    return out;
  }();
  return rows;
}

}  // namespace shardwright::cli
