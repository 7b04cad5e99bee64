"""Handshake: the messages that begin a connection, without input and output.

Both ends show that they know the secret of the cluster, without sending it. The acceptor sends a nonce in `Challenge`.
The connector answers with a nonce of its own in `Hello`, with its name, and with a proof. The acceptor checks the proof
and answers with its own proof in `Welcome`, or with `Refused`. A proof is an HMAC-SHA256 (RFC 2104) with the secret as
key, of everything that was said so far and of the role of its sender. So a proof is of no use in another connection,
for another name or in the other direction. Each field is preceded by its length, so that no two lists of fields have
the same bytes.

The handshake authenticates both ends at the beginning of a connection. It does not encrypt, and it does not protect the
bytes that follow from an attacker between the ends; TLS does (`dist.tls`).

    connector = Connector(identity)                     acceptor = Acceptor(identity)
                                                        challenge = acceptor.challenge()
    hello = connector.answer(challenge)
                                                        welcome = acceptor.receive(hello)
    peer = connector.finish(welcome)                    peer = acceptor.peer
"""

from __future__ import annotations

import dataclasses
import hmac
import os
from typing import Final

from headrace.dist.messages import VERSION, Challenge, Hello, Refused, Welcome
from headrace.errors import DataLossError, UnauthenticatedError, UnavailableError
from headrace.records import record

NONCE_BYTES: Final = 32


@record(frozen=True, slots=True)
class Identity:
    """Name and secret of a process.

    Attributes:
      role: "client", "master" or "worker".
      name: its task ("/job:worker/replica:0/task:1"), or the name of a client.
      incarnation: a random number that the process draws when it starts.
      secret: the secret of the cluster; empty: the ends of a connection prove nothing.
    """

    role: str
    name: str
    incarnation: int
    secret: bytes = dataclasses.field(default=b"", repr=False)


@record(frozen=True, slots=True)
class Peer:
    """The process at the other end of a connection.

    Attributes:
      role: "client", "master" or "worker"; "" for the acceptor of a connection, which does not state it.
      name: its task, or the name of a client.
      incarnation: the random number that it drew when it started.
    """

    role: str
    name: str
    incarnation: int


class Acceptor:
    """The end of a connection that listened.

    Args:
      identity: name and secret of this process.
      nonce: the nonce; by default random bytes.

    Attributes:
      peer: the other end, after its proof was accepted; None before.
    """

    def __init__(self, identity: Identity, nonce: bytes | None = None) -> None:
        self._identity = identity
        self._nonce = os.urandom(NONCE_BYTES) if nonce is None else nonce
        self.peer: Peer | None = None

    def challenge(self) -> Challenge:
        """Returns the first message."""
        return Challenge(VERSION, self._nonce)

    def receive(self, message: object) -> Welcome:
        """Returns the answer to `Hello`, and sets `peer`.

        Raises:
          UnauthenticatedError: the other end has another version or secret.
          DataLossError: the message is none of those that are expected here.
        """
        if type(message) is not Hello:
            raise DataLossError(_unexpected(message, "Hello"))
        secret, name = self._identity.secret, f"{message.role[:100]} {message.name[:200]}"
        if not name.isprintable():
            name = repr(name)
        _check_version(message.version, name)
        if secret and not hmac.compare_digest(message.proof, _connector_proof(secret, self._nonce, message)):
            if message.proof:
                raise UnauthenticatedError(f"the secret of the {name} differs from that of this process")
            raise UnauthenticatedError(f"the {name} has no secret; give it the secret of the cluster")
        if message.proof and not secret:
            raise UnauthenticatedError(
                f"the {name} has a secret and this process has none; give the same secret to all processes"
            )
        self.peer = Peer(message.role, message.name, message.incarnation)
        name, incarnation = self._identity.name, self._identity.incarnation
        proof = _acceptor_proof(secret, self._nonce, message, name, incarnation) if secret else b""
        return Welcome(name, incarnation, proof)


class Connector:
    """The end of a connection that connected.

    Args:
      identity: name and secret of this process.
      name: the expected name of the other end; "": any.
      incarnation: the expected incarnation of the other end; 0: any.
      nonce: the nonce; by default random bytes.
    """

    def __init__(self, identity: Identity, name: str = "", incarnation: int = 0, nonce: bytes | None = None) -> None:
        self._identity = identity
        self._name = name
        self._incarnation = incarnation
        self._nonce = os.urandom(NONCE_BYTES) if nonce is None else nonce
        self._acceptor_nonce = b""
        self._hello: Hello | None = None

    def answer(self, message: object) -> Hello:
        """Returns the answer to `Challenge`.

        Raises:
          UnauthenticatedError: the other end has another version.
          UnavailableError: the other end refuses connections at the moment.
          DataLossError: the message is none of those that are expected here.
        """
        if type(message) is Refused:
            raise UnavailableError(f"the connection was refused: {message.reason}")
        if type(message) is not Challenge:
            raise DataLossError(_unexpected(message, "Challenge"))
        _check_version(message.version, "other process")
        if message.nonce == self._nonce:  # only with an acceptor that returns the bytes that it receives
            raise UnauthenticatedError("the other process returned the nonce of this one")
        identity, self._acceptor_nonce = self._identity, message.nonce
        hello = Hello(VERSION, identity.role, identity.name, identity.incarnation, self._nonce, b"")
        if identity.secret:
            proof = _connector_proof(identity.secret, message.nonce, hello)
            hello = Hello(VERSION, identity.role, identity.name, identity.incarnation, self._nonce, proof)
        self._hello = hello
        return hello

    def finish(self, message: object) -> Peer:
        """Returns the other end, from its last message.

        Raises:
          UnauthenticatedError: the other end refused this one, has another secret or another name.
          UnavailableError: the other end has another incarnation, so its process was started again.
          DataLossError: the message is none of those that are expected here.
        """
        if type(message) is Refused:
            raise UnauthenticatedError(f"the connection was refused: {message.reason}")
        if type(message) is not Welcome or self._hello is None:
            raise DataLossError(_unexpected(message, "Welcome"))
        secret = self._identity.secret
        if secret:
            proof = _acceptor_proof(secret, self._acceptor_nonce, self._hello, message.name, message.incarnation)
            if not hmac.compare_digest(message.proof, proof):
                raise UnauthenticatedError(f"the secret of {message.name} differs from that of this process")
        if self._name and message.name != self._name:
            raise UnauthenticatedError(f"the process at this address is {message.name}; {self._name} was expected")
        if self._incarnation and message.incarnation != self._incarnation:
            raise UnavailableError(
                f"{message.name} was started again: its incarnation is {message.incarnation}; {self._incarnation} was "
                "expected"
            )
        return Peer("", message.name, message.incarnation)


def _check_version(version: int, name: str) -> None:
    if version != VERSION:
        raise UnauthenticatedError(
            f"the {name} speaks version {version}, this process {VERSION}; use one version of headrace in all processes"
        )


def _unexpected(message: object, expected: str) -> str:
    return f"{expected} was expected in the handshake; {type(message).__name__} arrived"


def _connector_proof(secret: bytes, acceptor_nonce: bytes, hello: Hello) -> bytes:
    return _proof(secret, b"connector", *_said(acceptor_nonce, hello))


def _acceptor_proof(secret: bytes, acceptor_nonce: bytes, hello: Hello, name: str, incarnation: int) -> bytes:
    return _proof(secret, b"acceptor", *_said(acceptor_nonce, hello), name.encode(), _number(incarnation))


def _said(acceptor_nonce: bytes, hello: Hello) -> tuple[bytes, ...]:
    name = hello.role.encode(), hello.name.encode(), _number(hello.incarnation)
    return _number(hello.version), acceptor_nonce, hello.nonce, *name


def _proof(secret: bytes, *fields: bytes) -> bytes:
    return hmac.digest(secret, b"".join(_number(len(f)) + f for f in (b"headrace", *fields)), "sha256")


def _number(value: int) -> bytes:
    return value.to_bytes(8, "little")
