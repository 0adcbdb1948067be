"""Protocols are found by themselves, in files of their own, and by name; what cannot be found is one clear error."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.protocol.definition import FAMILIES, Protocol
from cubecast.protocol.parameters import describe
from cubecast.protocols import catalogue
from cubecast.protocols.catalogue import (
    chosen,
    detector_named,
    list_protocols,
    load_protocol_file,
    protocol_named,
    transport_named,
)
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import simulate
from tests.support.own_protocols import restored_catalogue

EXAMPLE = Path(__file__).parents[2] / "examples" / "doubling.py"


@pytest.fixture(autouse=True)
def _own_catalogue() -> Iterator[None]:
    with restored_catalogue():
        yield


@pytest.mark.parametrize("protocol", list_protocols(), ids=lambda one: f"{one.family} {one.name}")
def test_every_entry_is_complete(protocol: Protocol) -> None:
    protocol.check()
    assert protocol.title
    assert protocol.paper
    assert protocol.summary
    assert not protocol.summary.endswith(".")
    for info in describe(protocol.parameters).values():
        assert info.help.endswith("."), info.name
        assert info.default is not None or info.otherwise, f"{info.name} does not say what None means"


def test_names_are_unique_within_what_a_user_chooses_from() -> None:
    """In a process of its own: other tests add protocols."""
    program = """
from cubecast.protocols import catalogue
ours = catalogue.list_protocols()
names = [(catalogue._space(one.family), one.name) for one in ours]
assert len(names) == len(set(names)) > 20
titles = [(one.family, one.title) for one in ours]
assert len(titles) == len(set(titles))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_protocols_are_listed_by_family_and_name() -> None:
    order = list(FAMILIES)
    listed = [(order.index(one.family), one.name) for one in list_protocols()]
    assert listed == sorted(listed)
    for family in FAMILIES:
        assert {one.family for one in list_protocols(family)} == {family}
    with pytest.raises(LocalProtocolError, match=r"^unknown family 'magic': choose one of stability, causal, "):
        list_protocols("magic")


def test_a_protocol_is_found_however_its_name_is_spelt() -> None:
    assert protocol_named("full-dist") is protocol_named("FULL_DIST") is protocol_named("full_dist")


def test_a_detector_may_have_the_name_of_a_stability_protocol() -> None:
    assert protocol_named("gossip").family == "stability"
    assert detector_named("gossip").family == "failure"


def test_an_unknown_name_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(LocalProtocolError, match=r"^unknown protocol 'magic': choose one of .*\bcoord\b"):
        protocol_named("magic")
    with pytest.raises(LocalProtocolError, match=r"^unknown transport 'coord': choose one of ack, hierarchical, "):
        transport_named("coord")
    with pytest.raises(LocalProtocolError, match=r"^unknown failure detector 'nak': choose one of gossip, heartbeat, "):
        detector_named("nak")


# What is chosen where the user leaves the choice open.


@pytest.mark.parametrize("family", ["stability", "causal", "transport", "failure"])
def test_something_is_chosen_for_a_group_of_any_size(family: str) -> None:
    for members in (0, 1, 2, 3, 32, 33, 1000, 4096):
        found = chosen(family, members)
        assert found.family == family
        assert found.auto_from is not None


def test_the_choice_follows_the_size_of_the_group() -> None:
    large = replace(protocol_named("timestamp"), name="for_large_groups", auto_from=500)
    catalogue.add_protocol(large)
    assert chosen("causal", 499) is not large
    assert chosen("causal", 500) is large
    assert chosen("causal", 4000) is large


def test_auto_names_what_is_chosen() -> None:
    assert transport_named("auto", 8) is chosen("transport", 8)
    assert detector_named("auto", 8) is chosen("failure", 8)
    scenario = Scenario(protocol="coord", members=8, detector="auto")
    assert scenario.entry("transport_parameters") is chosen("transport", 8)
    assert scenario.entry("detector_parameters") is chosen("failure", 8)


# Files.


def copy_of_the_example(folder: Path, name: str, text: str = "") -> Path:
    """The example under another name, with `text` at its end."""
    path = folder / f"{name}.py"
    path.write_text(EXAMPLE.read_text("utf-8").replace('name="doubling"', f'name="{name}"') + text, "utf-8")
    return path


def test_a_file_is_loaded_once_and_its_protocol_runs() -> None:
    (found,) = load_protocol_file(EXAMPLE)
    assert found is protocol_named("doubling")
    assert load_protocol_file(str(EXAMPLE))[0] is found
    assert simulate("doubling", members=5, network="chain").rounds == 1


def test_a_file_may_declare_several(tmp_path: Path) -> None:
    several = "\n\nfrom dataclasses import replace\nPROTOCOLS = (replace(PROTOCOL, name='other_two'),)\n"
    found = load_protocol_file(copy_of_the_example(tmp_path, "one_of_two", several))
    assert {one.name for one in found} == {"one_of_two", "other_two"}
    assert protocol_named("other_two").state is protocol_named("one_of_two").state


def test_a_file_does_not_declare_two_of_the_same_name(tmp_path: Path) -> None:
    path = copy_of_the_example(tmp_path, "twice", "\n\nPROTOCOLS = (PROTOCOL,)\n")
    with pytest.raises(LocalProtocolError, match=r"twice\.py has two protocols twice: give each a name of its own$"):
        load_protocol_file(path)


def test_a_file_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(LocalProtocolError, match=r"^protocol file .*nothing\.py: there is no such file$"):
        load_protocol_file(tmp_path / "nothing.py")


def test_a_file_without_a_protocol_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "without_protocol.py"
    path.write_text("STATE = 1\n")
    with pytest.raises(LocalProtocolError, match=r"without_protocol\.py has no PROTOCOL: end it with PROTOCOL = "):
        load_protocol_file(path)


@pytest.mark.parametrize(
    ("text", "said"), [("import no_such_library\n", "No module named 'no_such_library'"), ("PROTOCOL = \n", "invalid")]
)
def test_a_file_that_cannot_be_imported_is_one_clear_error(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "cannot_be_imported.py"
    path.write_text(text)
    with pytest.raises(LocalProtocolError, match=rf"^protocol file .*\.py cannot be imported: {said}"):
        load_protocol_file(path)
    assert "cannot_be_imported" not in sys.modules
    path.write_text(copy_of_the_example(tmp_path, "mended_now").read_text("utf-8"), "utf-8")
    assert load_protocol_file(path)[0].name == "mended_now"


@pytest.mark.parametrize("name", ["sys", "json", "colorsys", "one_of_many"])
def test_a_file_never_takes_the_name_of_another_module(tmp_path: Path, name: str) -> None:
    (tmp_path / "first").mkdir()
    load_protocol_file(copy_of_the_example(tmp_path / "first", "one_of_many"))
    before = sys.modules.get(name)
    with pytest.raises(LocalProtocolError, match=rf"another module is called '{name}', rename the file$"):
        load_protocol_file(copy_of_the_example(tmp_path, name))
    assert sys.modules.get(name) is before


def test_a_file_with_a_wrong_entry_is_one_clear_error_and_may_be_mended(tmp_path: Path) -> None:
    path = copy_of_the_example(tmp_path, "wrong_entry")
    right = path.read_text("utf-8")
    path.write_text(right.replace('family="stability"', 'family="magic"'), "utf-8")
    with pytest.raises(LocalProtocolError, match="family 'magic' of wrong_entry: choose one of"):
        load_protocol_file(path)
    path.write_text(right, "utf-8")
    assert load_protocol_file(path)[0].family == "stability"


def listed_with(environment: str) -> subprocess.CompletedProcess[str]:
    """What a new process lists when the environment names these files."""
    return subprocess.run(
        [sys.executable, "-m", "cubecast", "protocols", "--family", "stability"],
        env=os.environ | {catalogue.ENVIRONMENT: environment, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_environment_names_files_for_every_process(tmp_path: Path) -> None:
    files = [EXAMPLE, copy_of_the_example(tmp_path, "from_environment")]
    listed = listed_with(os.pathsep.join(map(str, files)))
    assert listed.returncode == 0, listed.stderr
    assert "doubling" in listed.stdout
    assert "from_environment" in listed.stdout


def test_a_file_that_the_environment_names_in_vain_is_one_line(tmp_path: Path) -> None:
    listed = listed_with(str(tmp_path / "nothing.py"))
    assert listed.returncode == 2
    assert listed.stderr.count("\n") == 1
    assert "nothing.py: there is no such file" in listed.stderr
