"""Images in a registry, read without an engine: the pull half of the OCI distribution protocol.

Answers are bounded and verified by digest. A login goes to the registry and its token server, never
along a redirect.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from operator import index
from traceback import clear_frames
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit
from urllib.request import (
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    getproxies_environment,
)

from orchestrator.container.code import Pieces
from orchestrator.container.image import EngineError
from orchestrator.container.local import split_reference
from orchestrator.container.pull import Login
from orchestrator.onnode.kernel.client import proxy_of, registry_in
from orchestrator.words import cell, quoted

DOCKER_HUB = "registry-1.docker.io"
KINDS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
MOST_DESCRIPTION = 8 << 20
"""Twice the manifest size that registries must accept; configurations are smaller."""
MOST_ANSWER = 64 << 10
"""Of a token server, or with an error."""
MOST_REDIRECTS = 5
ANSWER_S = 60
PIECE = 1 << 20
PAUSES_S = (0, 2, 10, 30)
"""Before each new try of a broken transfer; received bytes are kept."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_TOKEN = re.compile(r"[\x21-\x7e]{1,32768}")
_BROKEN = (HTTPException, OSError)


@dataclass(frozen=True)
class Blob:
    """A part of an image by its digest; `size` is in bytes."""

    digest: str
    size: int

    @classmethod
    def of(cls, descriptor: Mapping[str, Any]) -> Blob:
        """Return a descriptor's blob. Raises ValueError, KeyError or TypeError."""
        digest, size = str(descriptor["digest"]), index(descriptor["size"])
        if not _DIGEST.fullmatch(digest) or not 0 <= size < 1 << 63:
            raise ValueError(f"{digest[:80]!r} is not a digest with a size")
        return cls(digest, size)


class _Unreachable(EngineError):
    """A connection failed; the next may not."""

    def __init__(self, message: str, *, why: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.why = why


class Registry:
    """An image's repository in its registry; `login` wins over Docker's configuration.

    `proxy` has variables such as `https_proxy`; those of the environment win.
    """

    def __init__(
        self, reference: str, *, login: Login | None = None, proxy: Mapping[str, str] | None = None
    ) -> None:
        self.reference = reference
        name, self.tag = split_reference(reference)
        host = registry_in(name) or "docker.io"
        path = name.removeprefix(f"{host}/")
        is_hub = host in ("docker.io", "index.docker.io", DOCKER_HUB)
        self.host = "docker.io" if is_hub else host
        self._repository = f"library/{path}" if is_hub and "/" not in path else path
        self._address = DOCKER_HUB if is_hub else host
        self._login = login
        self._authorization = ""
        of_environment = {f"{key}_proxy": value for key, value in getproxies_environment().items()}
        given = {key.lower(): value for key, value in (proxy or {}).items()}
        self._opener = _Requests({**given, **of_environment})

    def manifest(self, digest: str = "") -> tuple[str, bytes]:
        """Return digest and bytes of the manifest or index `digest` (default: the reference's).
        Raises EngineError."""
        named = digest or self.tag
        with closing(self._get(f"manifests/{named}", accept=", ".join(KINDS))) as response:
            content = self._bounded(response, MOST_DESCRIPTION)
        if not _DIGEST.fullmatch(named):
            named = response.headers.get("Docker-Content-Digest") or _digest_of(content)
        if not _DIGEST.fullmatch(named) or _digest_of(content, named) != named:
            raise self._damaged(f"its manifest does not have the digest {cell(named)[:80]}")
        return named, content

    def blob(self, blob: Blob) -> io.BufferedReader:
        """Return a blob as a stream, which raises EngineError for other content, at its end at the
        latest."""
        return Pieces.buffered(self._pieces(blob))

    def _pieces(self, blob: Blob) -> Iterator[bytes]:
        hashed = hashlib.new(blob.digest.partition(":")[0])
        done, tries = 0, iter(PAUSES_S)
        while done < blob.size:
            why = f"it ends after {done} of {blob.size} bytes"
            try:
                with closing(self._get(f"blobs/{blob.digest}", start=done)) as response:
                    skipped = done if response.status == 200 else 0  # it has no ranges
                    while skipped and (piece := response.read(min(PIECE, skipped))):
                        skipped -= len(piece)
                    while piece := response.read(min(PIECE, blob.size - done)):
                        hashed.update(piece)
                        done += len(piece)
                        tries = iter(PAUSES_S)
                        yield piece
            except _Unreachable as error:
                why = error.why
            except _BROKEN as error:
                why = _reason(error)
            if done < blob.size:
                pause = next(tries, None)
                if pause is None:
                    raise self._unreachable(why)
                time.sleep(pause)
        if hashed.hexdigest() != blob.digest.partition(":")[2]:
            raise self._damaged(f"a part does not have its digest {blob.digest}")

    # ---- requests ----

    def _get(self, path: str, *, accept: str = "", start: int = 0) -> HTTPResponse:
        """Return the answer to a request, after a login if necessary."""
        scheme = "http" if _is_loopback(self._address) else "https"
        url = f"{scheme}://{self._address}/v2/{self._repository}/{path}"
        headers = {"Accept": accept} if accept else {}
        if start:
            headers["Range"] = f"bytes={start}-"
        response = self._follow(url, headers, self._authorization)
        if response.status == 401 and _origin(response.geturl()) == _origin(url):
            with closing(response):
                self._authorization = self._authorize(response.headers.get_all("WWW-Authenticate"))
            response = self._follow(url, headers, self._authorization)
        if response.status not in ((200, 206) if start else (200,)):
            with closing(response):
                raise self._refused(response)
        return response

    def _follow(self, url: str, headers: Mapping[str, str], authorization: str) -> HTTPResponse:
        """Return the answer behind redirects, which get no login."""
        first = _origin(url)
        for _ in range(MOST_REDIRECTS + 1):
            request = Request(url, headers=dict(headers))
            if authorization:
                request.add_header("Authorization", authorization)
            try:
                response: HTTPResponse = self._opener.open(request, timeout=ANSWER_S)
            except (*_BROKEN, ValueError) as error:
                _drop_connections(error)
                raise self._unreachable(_reason(error)) from None
            target = response.headers.get("Location")
            if response.status not in (301, 302, 303, 307, 308) or not target:
                return response
            response.close()
            url = urljoin(url, target)
            if not self._may_ask(url):
                raise self._damaged(f"it redirects to {cell(url)[:120]}, which is not https://")
            if _origin(url) != first:
                authorization = ""
        raise self._damaged(f"it redirects more than {MOST_REDIRECTS} times")

    def _may_ask(self, url: str) -> bool:
        try:
            parts = urlsplit(url)
            is_local = _is_loopback(self._address) and _is_loopback(parts.netloc)
        except ValueError:
            return False
        return bool(parts.hostname) and parts.scheme in ("https", "http" if is_local else "https")

    def _authorize(self, challenges: list[str] | None) -> str:
        login = self._login or _configured_login(self.host)
        basic = _basic(login) if login else ""
        for challenge in challenges or ():
            scheme, _, rest = challenge.partition(" ")
            if scheme.lower() == "basic" and basic and self._authorization != basic:
                return basic
            if scheme.lower() == "bearer":
                fields = dict(re.findall(r'([a-z]+)="([^"]*)"', rest))
                return f"Bearer {self._token(fields, basic)}"
        raise self._no_login("it asks for a login")

    def _token(self, fields: Mapping[str, str], basic: str) -> str:
        realm = fields.get("realm", "")
        if not self._may_ask(realm):
            raise self._damaged(f"its token server {cell(realm)[:120]!r} is not https://")
        asked = {"scope": fields.get("scope") or f"repository:{self._repository}:pull"}
        if "service" in fields:
            asked["service"] = fields["service"]
        joint = "&" if urlsplit(realm).query else "?"
        with closing(self._follow(f"{realm}{joint}{urlencode(asked)}", {}, basic)) as response:
            if response.status != 200:
                raise self._refused(response)
            answer = _json(self._bounded(response, MOST_ANSWER))
        token = str(answer.get("token") or answer.get("access_token") or "")
        if not _TOKEN.fullmatch(token):
            raise self._damaged("its token server gives no token")
        return token

    def _bounded(self, response: HTTPResponse, most: int) -> bytes:
        try:
            content = response.read(most + 1)
        except _BROKEN as error:
            raise self._unreachable(_reason(error)) from None
        if len(content) > most:
            raise self._damaged(f"it sends more than {most} bytes of description")
        return content

    # ---- errors ----

    def _refused(self, response: HTTPResponse) -> EngineError:
        try:
            said = _json(response.read(MOST_ANSWER)).get("errors")
        except _BROKEN:
            said = None
        first = said[0] if isinstance(said, list) and said and isinstance(said[0], dict) else {}
        text = f"HTTP {response.status} {cell(first.get('message') or response.reason)[:200]}"
        match response.status:
            case 401 | 403:
                return self._no_login(text)
            case 404:
                return self._error(f"it has no such image ({text})", "check name and tag")
            case 429:
                return self._error(
                    f"it is busy, or your limit is reached ({text})",
                    "try again later; a login has a higher limit: --login USER --password-stdin",
                )
            case _:
                return self._error(text, "try again later")

    def _no_login(self, text: str) -> EngineError:
        return self._error(
            f"it gives this image only after a login, or does not have it ({text})",
            "the same command with --login USER --password-stdin <file-with-the-password; "
            f"or log in once on a host with docker: docker login {quoted(self.host)}",
        )

    def _unreachable(self, why: str) -> _Unreachable:
        hint = (
            "export HTTPS_PROXY=http://PROXY:PORT if this host needs a proxy (or container.proxy)"
        )
        if "certificate" in why.lower():
            hint = "export SSL_CERT_FILE=/path/of/your/ca.pem if the registry has a CA of its own"
        elif "ssl" in why.lower():
            hint = "only a registry on this host may speak http://; save the image and use --from"
        return _Unreachable(self._text(f"not reached: {cell(why)[:200]}"), why=why, hint=hint)

    def _damaged(self, why: str) -> EngineError:
        return self._error(
            f"its answer is not to be trusted: {why}", "pull the image with an engine, or --from"
        )

    def _error(self, text: str, hint: str) -> EngineError:
        return EngineError(self._text(text), hint=hint)

    def _text(self, text: str) -> str:
        return f"{self.reference}: the registry {self.host}: {text}"


class _Requests(OpenerDirector):
    """Sends requests through the proxy of `variables`, without redirects."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        super().__init__()
        self.addheaders = [("User-Agent", "orchestrator")]
        https = HTTPSHandler(context=ssl.create_default_context())
        for handler in (_Proxy(variables), HTTPHandler(), https):
            self.add_handler(handler)


class _Proxy(ProxyHandler):
    """The proxy for https:// of `variables`, with networks in no_proxy."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        super().__init__({"https": "-"})
        self._variables = variables

    def proxy_open(self, req: Request, proxy: str, type: str) -> Any:
        address = proxy_of(urlsplit(req.full_url).hostname or "", self._variables)
        return super().proxy_open(req, address, type) if address else None


def _drop_connections(error: BaseException | None) -> None:
    """Drop the variables behind an error: in one, Python 3.11.2 leaves the connection to a refusing
    proxy open."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__context__


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _is_loopback(address: str) -> bool:
    """Return whether HOST:PORT is this host, which needs no encryption."""
    host = urlsplit(f"//{address}").hostname or ""
    return host in ("localhost", "::1") or bool(re.fullmatch(r"127(\.\d+){3}", host))


def _basic(login: Login) -> str:
    return "Basic " + base64.b64encode(f"{login.user}:{login.password}".encode()).decode()


def _configured_login(host: str) -> Login | None:
    """Return the login kept by `docker login`."""
    from docker.auth import load_config
    from docker.errors import DockerException

    try:
        kept = load_config().resolve_authconfig(host) or {}
    except (DockerException, ValueError, AttributeError, TypeError):  # a damaged file
        return None
    known = {str(name).lower(): value for name, value in kept.items()}
    user, password = known.get("username"), known.get("password")
    return Login(str(user), str(password)) if user and password else None


def _digest_of(content: bytes, like: str = "sha256:") -> str:
    algorithm = like.partition(":")[0]
    return f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"


def _json(content: bytes) -> Mapping[str, Any]:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _reason(error: Exception) -> str:
    inner = getattr(error, "reason", None)
    return str(inner or error) or type(error).__name__
