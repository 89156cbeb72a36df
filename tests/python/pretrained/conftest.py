import pytest
from offloaded_models import llama, mixtral


@pytest.fixture(scope="session")
def repos(tmp_path_factory):
    root = tmp_path_factory.mktemp("repos")
    for name, tied in (("tied", True), ("untied", False)):
        llama(tied).save_pretrained(root / name, max_shard_size="20KB")
    mixtral().save_pretrained(root / "mixtral", max_shard_size="40KB")
    return root
