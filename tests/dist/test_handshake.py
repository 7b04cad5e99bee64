"""The handshake: proofs of both ends, other versions, names and incarnations."""

from __future__ import annotations

import dataclasses
import hmac
from typing import Any

import msgspec
import pytest

from headrace.dist.handshake import Acceptor, Connector, Identity, Peer
from headrace.dist.messages import VERSION, Challenge, Describe, Hello, Refused, Welcome, decode, encode
from headrace.errors import DataLossError, UnauthenticatedError, UnavailableError

MASTER = Identity("master", "/job:master/task:0", 11, b"secret")
WORKER = Identity("worker", "/job:worker/task:1", 22, b"secret")


def greet(acceptor: Acceptor, connector: Connector) -> tuple[Peer | None, Peer]:
    """Exchanges the encoded messages. Returns the other end, as each end knows it."""
    challenge = decode(encode(acceptor.challenge()))
    hello = decode(encode(connector.answer(challenge)))
    return acceptor.peer, connector.finish(decode(encode(acceptor.receive(hello))))


@pytest.mark.parametrize("secret", [b"", b"x", bytes(range(256))])
def test_both_ends_know_each_other(secret: bytes) -> None:
    master, worker = dataclasses.replace(MASTER, secret=secret), dataclasses.replace(WORKER, secret=secret)
    acceptor = Acceptor(worker)
    _, peer = greet(acceptor, Connector(master, worker.name, worker.incarnation))
    assert acceptor.peer == Peer("master", master.name, 11)
    assert peer == Peer("", worker.name, 22)


def test_without_a_secret_the_proofs_are_empty() -> None:
    master, worker = dataclasses.replace(MASTER, secret=b""), dataclasses.replace(WORKER, secret=b"")
    acceptor, connector = Acceptor(worker), Connector(master)
    hello = connector.answer(acceptor.challenge())
    assert hello.proof == acceptor.receive(hello).proof == b""


def test_proofs_do_not_contain_the_secret_and_differ() -> None:
    acceptor, connector = Acceptor(WORKER), Connector(MASTER)
    hello = connector.answer(acceptor.challenge())
    welcome = acceptor.receive(hello)
    assert len(hello.proof) == len(welcome.proof) == 32
    assert hello.proof != welcome.proof
    assert b"secret" not in encode(hello) + encode(welcome)


@pytest.mark.parametrize(
    ("ours", "theirs", "text"),
    [
        (b"one", b"two", "the secret of the master /job:master/task:0 differs"),
        (b"one", b"", "has no secret; give it the secret of the cluster"),
        (b"", b"two", "has a secret and this process has none"),
    ],
)
def test_the_acceptor_refuses_another_secret(ours: bytes, theirs: bytes, text: str) -> None:
    acceptor = Acceptor(dataclasses.replace(WORKER, secret=ours))
    hello = Connector(dataclasses.replace(MASTER, secret=theirs)).answer(acceptor.challenge())
    with pytest.raises(UnauthenticatedError, match=text):
        acceptor.receive(hello)
    assert acceptor.peer is None


@pytest.mark.parametrize("secret", [b"", b"other"])
def test_the_connector_refuses_another_secret(secret: bytes) -> None:
    connector = Connector(MASTER)
    hello = connector.answer(Challenge(VERSION, bytes(32)))
    acceptor = Acceptor(dataclasses.replace(WORKER, secret=secret), bytes(32))
    welcome = acceptor.receive(
        msgspec.structs.replace(
            hello,
            proof=Connector(dataclasses.replace(MASTER, secret=secret), nonce=hello.nonce)
            .answer(acceptor.challenge())
            .proof,
        )
    )
    with pytest.raises(UnauthenticatedError, match="the secret of /job:worker/task:1 differs"):
        connector.finish(welcome)


@pytest.mark.parametrize(
    "change", [{"role": "worker"}, {"name": "/job:master/task:1"}, {"incarnation": 12}, {"nonce": bytes(32)}]
)
def test_a_proof_is_valid_for_its_hello_alone(change: dict[str, Any]) -> None:
    acceptor = Acceptor(WORKER)
    hello = Connector(MASTER).answer(acceptor.challenge())
    with pytest.raises(UnauthenticatedError):
        acceptor.receive(msgspec.structs.replace(hello, **change))
    acceptor.receive(hello)


def test_a_proof_is_valid_for_one_challenge() -> None:
    first, second = Acceptor(WORKER), Acceptor(WORKER)
    hello = Connector(MASTER).answer(first.challenge())
    with pytest.raises(UnauthenticatedError):
        second.receive(hello)


@pytest.mark.parametrize("change", [{"name": "/job:worker/task:2"}, {"incarnation": 23}])
def test_the_proof_of_the_acceptor_is_valid_for_its_welcome_alone(change: dict[str, Any]) -> None:
    acceptor, connector = Acceptor(WORKER), Connector(MASTER)
    welcome = acceptor.receive(connector.answer(acceptor.challenge()))
    with pytest.raises(UnauthenticatedError):
        connector.finish(msgspec.structs.replace(welcome, **change))


def test_the_proof_of_the_connector_is_no_proof_of_the_acceptor() -> None:
    connector = Connector(MASTER)
    hello = connector.answer(Acceptor(WORKER).challenge())
    with pytest.raises(UnauthenticatedError):
        connector.finish(Welcome(MASTER.name, MASTER.incarnation, hello.proof))


def test_an_acceptor_that_reflects_the_nonce_is_refused() -> None:
    connector = Connector(MASTER, nonce=bytes(32))
    with pytest.raises(UnauthenticatedError, match="returned the nonce"):
        connector.answer(Challenge(VERSION, bytes(32)))


def test_both_ends_refuse_another_version() -> None:
    text = f"speaks version {VERSION + 2}, this process {VERSION}; use one version of headrace in all processes"
    with pytest.raises(UnauthenticatedError, match=text):
        Connector(MASTER).answer(Challenge(VERSION + 2, bytes(32)))
    acceptor = Acceptor(WORKER)
    hello = Connector(MASTER).answer(acceptor.challenge())
    with pytest.raises(UnauthenticatedError, match=text):
        acceptor.receive(msgspec.structs.replace(hello, version=VERSION + 2))


def test_the_connector_refuses_another_name_or_incarnation() -> None:
    with pytest.raises(UnauthenticatedError, match="is /job:worker/task:1; /job:worker/task:3 was expected"):
        greet(Acceptor(WORKER), Connector(MASTER, name="/job:worker/task:3"))
    with pytest.raises(UnavailableError, match="was started again: its incarnation is 22; 21 was expected"):
        greet(Acceptor(WORKER), Connector(MASTER, incarnation=21))


def test_a_refusal_becomes_an_error() -> None:
    connector = Connector(MASTER)
    with pytest.raises(UnavailableError, match="was refused: too many"):
        connector.answer(Refused("too many"))
    connector.answer(Challenge(VERSION, bytes(32)))
    with pytest.raises(UnauthenticatedError, match="was refused: no"):
        connector.finish(Refused("no"))


@pytest.mark.parametrize(
    "message", [Describe(1), Welcome("a", 1, b""), Refused("x"), Challenge(VERSION, bytes(32)), None]
)
def test_the_acceptor_takes_hello_alone(message: object) -> None:
    with pytest.raises(DataLossError, match="Hello was expected in the handshake"):
        Acceptor(WORKER).receive(message)


def test_the_connector_takes_challenge_and_then_welcome() -> None:
    connector = Connector(MASTER)
    with pytest.raises(DataLossError, match="Challenge was expected in the handshake; Describe arrived"):
        connector.answer(Describe(1))
    with pytest.raises(DataLossError, match="Welcome was expected"):
        connector.finish(Welcome("a", 1, b""))  # before the challenge
    connector.answer(Challenge(VERSION, bytes(32)))
    with pytest.raises(DataLossError, match="Welcome was expected in the handshake; Challenge arrived"):
        connector.finish(Challenge(VERSION, bytes(32)))


def test_a_name_cannot_forge_lines_of_a_log() -> None:
    acceptor = Acceptor(WORKER)
    with pytest.raises(UnauthenticatedError) as e:
        acceptor.receive(Hello(VERSION, "worker", "a\nERROR: b" + "c" * 900, 1, bytes(32), bytes(32)))
    assert "\n" not in str(e.value)
    assert len(str(e.value)) < 400


def test_the_secret_is_not_shown() -> None:
    assert "secret" not in repr(MASTER)
    assert "/job:master/task:0" in repr(MASTER)


def test_a_proof_is_the_documented_hmac() -> None:
    hello = Connector(MASTER, nonce=bytes(range(32))).answer(Challenge(VERSION, bytes(range(32, 64))))
    welcome = Acceptor(WORKER, bytes(range(32, 64))).receive(hello)

    def number(value: int) -> bytes:
        return value.to_bytes(8, "little")

    def proof(*fields: bytes) -> bytes:
        return hmac.new(b"secret", b"".join(number(len(f)) + f for f in fields), "sha256").digest()

    said = (number(VERSION), bytes(range(32, 64)), bytes(range(32)), b"master", MASTER.name.encode(), number(11))
    assert hello.proof == proof(b"headrace", b"connector", *said)
    assert welcome.proof == proof(b"headrace", b"acceptor", *said, WORKER.name.encode(), number(22))
