"""TLS of a link: an encrypted socket with the interface of a plain one.

OpenSSL copies all bytes, takes no list of buffers, and may not be entered by two threads at once.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Sequence
from typing import Final

from headrace import thresholds
from headrace.dist.reactor import READ, WRITE
from headrace.dist.values import Buffer
from headrace.errors import OpError, UnauthenticatedError, UnavailableError

JOINED: Final = thresholds.TLS_JOINED_BYTES  # bytes up to which buffers are joined


class TlsSocket:
    """An encrypted socket with the interface of a plain one.

    Attributes:
      record: bytes that one call of `recv_into` returns at most.
      reads: calls of `recv_into` before other links have their turn.
      read_waits: whether reading continues when the socket is writable.
      write_waits: whether writing continues when something was read.
    """

    record: Final = 1 << 14
    reads: Final = thresholds.TLS_LINK_READS

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._socket = sock
        self._lock = threading.Lock()
        self.read_waits = self.write_waits = False

    def shake(self) -> int:
        """Continues the handshake of TLS.

        Returns the events to wait for, or 0 at the end.
        """
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            return READ
        except ssl.SSLWantWriteError:
            return WRITE
        return 0

    def recv_into(self, buffer: memoryview) -> int:
        with self._lock:
            self.read_waits = False
            try:
                return self._socket.recv_into(buffer)
            except ssl.SSLWantReadError:
                raise BlockingIOError from None
            except ssl.SSLWantWriteError:
                self.read_waits = True
                raise BlockingIOError from None

    def pending(self) -> int:
        """Number of bytes that are decrypted but not received; the poll does not see them."""
        with self._lock:
            return self._socket.pending()

    def sendmsg(self, buffers: Sequence[Buffer]) -> int:
        """Returns the number of bytes that the socket has taken.

        Small buffers are sent together, and large ones one after another.
        """
        sent = at = 0
        with self._lock:
            self.write_waits = False
            while at < len(buffers):
                end, size = at + 1, len(buffers[at])
                while end < len(buffers) and size + len(buffers[end]) <= JOINED:
                    size += len(buffers[end])
                    end += 1
                data = memoryview(buffers[at] if end == at + 1 else b"".join(buffers[at:end]))
                while data:
                    try:
                        n = self._socket.send(data)
                    except ssl.SSLWantWriteError:  # the next call begins with the same bytes, as OpenSSL demands
                        return sent
                    except ssl.SSLWantReadError:
                        self.write_waits = True
                        return sent
                    sent += n
                    data = data[n:]
                at = end
        return sent

    @staticmethod
    def failure(error: OSError) -> OpError:
        """Returns the error of a connection that has failed in its handshake."""
        text = f"the handshake of TLS failed: {error.strerror or error}"
        if not isinstance(error, ssl.SSLError):
            return UnavailableError(text)
        reason = error.reason or ""
        if isinstance(error, ssl.SSLCertVerificationError):
            return UnauthenticatedError(f"{text}. This process does not accept the certificate of the other end")
        if "CERTIFICATE_REQUIRED" in reason or "ALERT_HANDSHAKE_FAILURE" in reason:
            return UnauthenticatedError(f"{text}. The other end demands a certificate")
        if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
            return UnauthenticatedError(f"{text}. The other end does not accept the certificate of this process")
        if "RETURN_CERTIFICATE" in reason:
            return UnauthenticatedError(f"{text}. The other end has shown no certificate")
        if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "UNEXPECTED_MESSAGE"):
            return UnavailableError(f"{text}. Only one end uses TLS; give certificates to all processes of the cluster")
        return UnavailableError(text)
