"""save_pretrained() in every state of offloading: the files that transformers writes for the same model in memory, and the model as it was."""
import json
import warnings

import pytest
import torch
import transformers
from offloaded_models import MIXED, STATES, contents, from_repo, llama, logits, reference
from safetensors import safe_open

import shardwright as sw
import shardwright.torch as swt


def described(model) -> list:
    """Hooks and places of everything in a model."""
    hooks = [(path, repr(getattr(module, "_hf_hook", None))) for path, module in model.named_modules()]
    return hooks + [(name, t.device.type, t.shape, t.dtype, id(t)) for name, t in model.state_dict(keep_vars=True).items()]


@pytest.mark.parametrize("kind", ["tied", "untied"])
@pytest.mark.parametrize("state", STATES)
def test_files_are_those_of_the_model_in_memory(repos, tmp_path, state, kind):
    expected = reference(repos / kind, tmp_path / "reference", "15KB")
    model = STATES[state](repos / kind, tmp_path / "offload")
    outputs, before = logits(model), described(model)
    summary = swt.save_pretrained(model, tmp_path / "ours", max_shard_size="15KB")
    assert contents(tmp_path / "ours") == expected
    assert summary.shards == sum(name.endswith(".safetensors") for name in expected) > 3
    assert described(model) == before and torch.equal(logits(model), outputs)
    again = from_repo(tmp_path / "ours")
    assert torch.equal(logits(again), outputs)
    assert (again.lm_head.weight is again.model.embed_tokens.weight) == (kind == "tied")


@pytest.mark.parametrize("state", ["memory", "repo", "disk_offload"])
def test_one_file_by_default(repos, tmp_path, state):
    expected = reference(repos / "tied", tmp_path / "reference", "50GB")
    model = STATES[state](repos / "tied", tmp_path / "offload")
    swt.save_pretrained(model, tmp_path / "ours")
    assert contents(tmp_path / "ours") == expected
    assert "model.safetensors" in expected and "model.safetensors.index.json" not in expected


@pytest.mark.parametrize("size", ["15KB", "40KB", "50GB"])
@pytest.mark.parametrize("state", ["memory", "disk", "mixed", "dispatched"])
def test_fused_experts_are_taken_apart(repos, tmp_path, state, size):
    expected = reference(repos / "mixtral", tmp_path / "reference", size)
    repo, folder = repos / "mixtral", tmp_path / "offload"
    if state == "memory":
        model = from_repo(repo)
    elif state == "dispatched":
        from accelerate import dispatch_model
        model = dispatch_model(from_repo(repo), {"model": "disk", "lm_head": "disk"}, offload_dir=folder)
    else:
        where = {"": "disk"} if state == "disk" else {**MIXED, "model.layers.0": "disk", "model.layers.1": "cpu"}
        model = from_repo(repo, device_map=where, offload_folder=folder)
    swt.save_pretrained(model, tmp_path / "ours", max_shard_size=size)
    assert contents(tmp_path / "ours") == expected


def test_a_model_of_a_configuration_keeps_its_order(tmp_path):
    llama().save_pretrained(tmp_path / "reference", max_shard_size="15KB")
    swt.save_pretrained(llama(), tmp_path / "ours", max_shard_size="15KB")
    assert contents(tmp_path / "ours") == contents(tmp_path / "reference")


def test_stored_types_are_cast_as_loaders_cast_them(repos, tmp_path):
    """A bf16 repository loaded as float32 and left on disk: what the model computes with is float32."""
    in_memory = from_repo(repos / "tied").to(torch.float32)
    in_memory.save_pretrained(tmp_path / "reference", max_shard_size="30KB")
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(repos / "tied", dtype=torch.float32, device_map={"": "disk"})
    swt.save_pretrained(model, tmp_path / "ours", max_shard_size="30KB")
    assert contents(tmp_path / "ours") == contents(tmp_path / "reference")


@pytest.mark.parametrize("offload_buffers", [False, True])
def test_buffers(tmp_path, offload_buffers):
    """Persistent ones are saved wherever they are, integers and scalars too; others are not."""
    from accelerate import disk_offload

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(4)
            self.register_buffer("counts", torch.arange(6), persistent=True)
            self.register_buffer("scratch", torch.ones(3), persistent=False)
            self.register_buffer("mask", torch.tensor([True, False]))
            self.empty = torch.nn.Parameter(torch.zeros(0, 3))
            self.zeros = torch.nn.Parameter(torch.zeros(0, 3))
    torch.manual_seed(0)
    plain = Net()
    plain.norm(torch.randn(5, 4))
    expected = {name: value.clone() for name, value in plain.state_dict().items()}
    model = disk_offload(plain, tmp_path / "offload", offload_buffers=offload_buffers)
    swt.save_pretrained(model, tmp_path / "ours")
    with safe_open(tmp_path / "ours" / "model.safetensors", "pt") as file:
        assert set(file.keys()) == set(expected) and "norm.num_batches_tracked" in expected and "zeros" in expected
        assert all(torch.equal(file.get_tensor(name), value) for name, value in expected.items())


def test_a_variant_has_names_of_its_own(repos, tmp_path):
    expected = reference(repos / "untied", tmp_path / "reference", "20KB", variant="fp16")
    swt.save_pretrained(STATES["repo"](repos / "untied", None), tmp_path / "ours", max_shard_size="20KB", variant="fp16")
    assert contents(tmp_path / "ours") == expected and "model.safetensors.index.fp16.json" in expected
    assert torch.equal(logits(from_repo(tmp_path / "ours", variant="fp16")), logits(from_repo(repos / "untied")))


def test_tensors_that_can_only_be_asked_for(repos, tmp_path):
    """A mapping that nobody knows behind the hooks: one tensor at a time is onloaded, and let go."""
    from collections.abc import Mapping

    class Asked(Mapping):
        def __init__(self, weights):
            self.weights, self.asked = weights, []

        def __getitem__(self, key):
            self.asked.append(key)
            return self.weights[key].clone()

        def __iter__(self):
            return iter(self.weights)

        def __len__(self):
            return len(self.weights)
    model = STATES["disk_offload"](repos / "untied", tmp_path / "offload")
    asked = Asked({n: t.detach() for n, t in from_repo(repos / "untied").state_dict().items()})
    for module in model.modules():
        for hook in getattr(getattr(module, "_hf_hook", None), "hooks", [getattr(module, "_hf_hook", None)]):
            if getattr(hook, "weights_map", None) is not None:
                hook.weights_map.dataset = asked
    swt.save_pretrained(model, tmp_path / "ours", max_shard_size="15KB")
    assert contents(tmp_path / "ours") == reference(repos / "untied", tmp_path / "reference", "15KB")
    assert sorted(asked.asked) == sorted(asked.weights), "each once"


def test_inside_a_forward_pass_the_onloaded_tensor_is_the_truth(repos, tmp_path):
    from accelerate.utils import align_module_device
    model = STATES["repo"](repos / "untied", None)
    head = model.lm_head
    with align_module_device(head, "cpu"):
        with torch.no_grad():
            head.weight.fill_(3)
        swt.save_pretrained(model, tmp_path / "ours")
    with safe_open(tmp_path / "ours" / "model.safetensors", "pt") as file:
        assert (file.get_tensor("lm_head.weight") == 3).all()


def test_float8_and_scales_are_their_raw_tensors(tmp_path):
    from accelerate import disk_offload

    class Quantised(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(16, 8).to(torch.float8_e4m3fn), requires_grad=False)
            self.weight_scale_inv = torch.nn.Parameter(torch.rand(2, 1))
            self.packed = torch.nn.Parameter(torch.randint(0, 255, (4, 4), dtype=torch.uint8), requires_grad=False)
    torch.manual_seed(0)
    model = torch.nn.Sequential(Quantised(), Quantised())
    expected = {n: t.detach().clone() for n, t in model.state_dict().items()}
    swt.save_pretrained(disk_offload(model, tmp_path / "offload", execution_device="cpu"), tmp_path / "ours")
    with safe_open(tmp_path / "ours" / "model.safetensors", "pt") as file:
        for name, tensor in expected.items():
            assert file.get_tensor(name).dtype == tensor.dtype
            assert torch.equal(file.get_tensor(name).view(torch.uint8), tensor.view(torch.uint8)), name


def test_nothing_is_said_that_need_not_be(repos, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        swt.save_pretrained(STATES["mixed"](repos / "tied", None), tmp_path / "ours")
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]


class Scaled(torch.Tensor):
    """Integers and their scale, as quantisers of torch make a weight of them: a tensor by name only."""

    @staticmethod
    def __new__(cls, qdata, scale):
        return torch.Tensor._make_wrapper_subclass(cls, qdata.shape, dtype=torch.bfloat16, device=qdata.device)

    def __init__(self, qdata, scale):
        self.qdata, self.scale = qdata, scale

    def __tensor_flatten__(self):
        return ["qdata", "scale"], None

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return cls(*(func(getattr(args[0], name), *args[1:], **(kwargs or {})) for name in ("qdata", "scale")))


class Quantizer(transformers.quantizers.HfQuantizer):
    """As torchao's: what is wrapped is saved as its parts, and the metadata says what they are."""

    requires_calibration = is_trainable = False

    def __init__(self, serializable=True):
        self.quantization_config, self.serializable = transformers.QuantoConfig(), serializable

    def is_serializable(self):
        return self.serializable

    def get_state_dict_and_metadata(self, model):
        state, metadata = {}, {}
        for name, value in model.state_dict().items():
            parts = value.__tensor_flatten__()[0] if isinstance(value, Scaled) else []
            state |= {f"{name}_{part}": getattr(value, part) for part in parts} if parts else {name: value}
            metadata |= {name: "Scaled"} if parts else {}
        return state, metadata


def quantised(hooks: bool):
    from accelerate.hooks import AlignDevicesHook
    model = llama()
    model.hf_quantizer = Quantizer()
    for i, layer in enumerate(model.model.layers):
        linear = layer.self_attn.o_proj
        # As bitsandbytes': its state lies beside the weight.
        linear._register_state_dict_hook(lambda module, state, prefix, _, i=i: state.update({f"{prefix}weight.absmax": torch.arange(i + 1.0)}))
        linear = layer.mlp.up_proj
        weight = Scaled((linear.weight.detach() * 100).to(torch.int8), torch.full((48, 1), 0.01 * (i + 1)))
        linear.weight = torch.nn.Parameter(weight.to("meta") if hooks else weight, requires_grad=False)
        if hooks:
            linear._hf_hook = AlignDevicesHook(execution_device="cpu", offload=True, weights_map={"weight": weight})
    return model


@pytest.mark.parametrize("hooks", [False, True], ids=["memory", "offloaded"])
def test_quantised_weights_are_their_raw_tensors(tmp_path, hooks):
    quantised(False).save_pretrained(tmp_path / "reference")
    swt.save_pretrained(quantised(hooks), tmp_path / "ours")
    found = [safe_open(tmp_path / name / "model.safetensors", "pt") for name in ("ours", "reference")]
    assert found[0].metadata() == found[1].metadata() and found[0].metadata()["model.layers.0.mlp.up_proj.weight"] == "Scaled"
    assert found[0].keys() == found[1].keys() and "model.layers.1.mlp.up_proj.weight_qdata" in found[0].keys()
    assert "model.layers.1.self_attn.o_proj.weight.absmax" in found[0].keys()
    assert all(torch.equal(found[0].get_tensor(name), found[1].get_tensor(name)) for name in found[1].keys())


def test_a_quantisation_that_cannot_be_saved_is_refused(tmp_path):
    model = llama()
    model.hf_quantizer = Quantizer(serializable=False)
    with pytest.raises(sw.UnsupportedError, match="quantisation cannot be saved"):
        swt.save_pretrained(model, tmp_path / "out")
    module = torch.nn.Linear(2, 2)
    module.weight = torch.nn.Parameter(Scaled(torch.ones(2, 2, dtype=torch.int8), torch.ones(2, 1)), requires_grad=False)
    with pytest.raises(sw.UnsupportedError, match="a Scaled is made of other tensors"):
        swt.save_pretrained(module, tmp_path / "out")
    assert not (tmp_path / "out").exists()
