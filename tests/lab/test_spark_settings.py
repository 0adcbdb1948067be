"""Settings of Spark: the user's take precedence; the reason of a failure comes from facts, not from Spark's text."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.lab.spark.settings import connect_address, parse_conf, session_settings, spark_defaults

pytest.importorskip("pyspark")


def test_the_users_defaults_are_read_as_spark_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert spark_defaults() == {}
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.a 1\n\nspark.sql.shuffle.partitions   64\nspark.master=spark://host:7077\n"
        "spark.driver.extraJavaOptions -Da=b -Dc=d\n"
    )
    assert spark_defaults() == {
        "spark.sql.shuffle.partitions": "64",
        "spark.master": "spark://host:7077",
        "spark.driver.extraJavaOptions": "-Da=b -Dc=d",
    }


@pytest.mark.parametrize("heavy", [False, True])
def test_the_users_settings_win(heavy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBECAST_SPARK_MEMORY", raising=False)
    theirs = {
        "spark.sql.shuffle.partitions": "64",
        "spark.sql.adaptive.enabled": "true",
        "spark.ui.enabled": "true",
        "spark.driver.memory": "9g",
        "spark.driver.extraJavaOptions": "-Da=b",
    }
    found = session_settings(theirs, master="local[2]", heavy=heavy, archive="")
    for key in theirs.keys() - {"spark.driver.extraJavaOptions"}:
        assert found[key] == theirs[key]
    assert found["spark.driver.extraJavaOptions"].endswith(" -Da=b")
    assert "ExitOnOutOfMemoryError" in found["spark.driver.extraJavaOptions"]


def test_a_pass_over_much_data_leaves_partitions_and_plans_to_spark() -> None:
    light = session_settings({}, master="local[2]", heavy=False, archive="")
    heavy = session_settings({}, master="spark://host:7077", heavy=True, archive="")
    for key in ("spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled", "spark.ui.enabled"):
        assert key in light
        assert key not in heavy


def test_settings_of_the_command_line() -> None:
    assert parse_conf(["spark.a=b=c", "spark.d="]) == {"spark.a": "b=c", "spark.d": ""}
    for word in ("spark.a", "a=b"):
        with pytest.raises(LocalProtocolError, match=r"write spark\.KEY=VALUE"):
            parse_conf([word])


def test_an_error_of_a_worker_arrives_word_by_word() -> None:
    from cubecast.lab.spark.failures import WorkerError, explain, reported

    said = 'two\nlines, "quotes" and cubecast-error in it'
    with pytest.raises(WorkerError) as caught, reported():
        raise LocalProtocolError(said)
    text = f"Job aborted\n  File x\nWorkerError: {caught.value}\n\tat org.apache.spark\nCaused by: OutOfMemoryError"
    assert explain(RuntimeError(text), java_exit=None) == said
    with pytest.raises(ZeroDivisionError), reported():
        raise ZeroDivisionError


def test_words_in_a_message_of_spark_decide_nothing() -> None:
    from cubecast.lab.spark.failures import explain

    for text in ("No space left on device", "java.lang.OutOfMemoryError", "Python worker exited unexpectedly"):
        assert explain(RuntimeError(text), java_exit=None) == text
    assert "out of memory" in explain(RuntimeError("Answer from Java side is empty"), java_exit=3)
    assert explain(RuntimeError("x"), java_exit=-9) == "Java ended with exit code -9"


@pytest.mark.parametrize("address", ["sc://127.0.0.1:1", "sc://127.0.0.1:x", "sc://"])
def test_a_connect_server_that_is_not_there_is_one_line(address: str) -> None:
    from cubecast.lab.spark.session import session

    with pytest.raises(LocalProtocolError, match=f"Spark does not answer at --master {address}"), session(address):
        pass


def test_a_connect_server_is_named_by_the_master_or_by_sparks_own_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    assert connect_address("sc://host", {}) == "sc://host"
    assert connect_address("local[2]", {"spark.remote": "sc://other"}) is None
    assert connect_address(None, {}) is None
    assert connect_address(None, {"spark.remote": "sc://other"}) == "sc://other"
    monkeypatch.setenv("SPARK_REMOTE", "sc://third")
    assert connect_address(None, {"spark.remote": "sc://other"}) == "sc://third"
    assert connect_address("local[2]", {}) is None
