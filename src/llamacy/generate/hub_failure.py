"""Why a file of the Hugging Face Hub could not be fetched, in words that say what to do."""

from __future__ import annotations

from collections.abc import Iterator


def is_wrong_name(error: Exception) -> bool:
    """Return whether what was given can't be the name of a repository."""
    return "HFValidationError" in _names(error)


def is_unreachable(error: Exception) -> bool:
    """Return whether the Hub gave no answer: there is no network, or it isn't to be used."""
    names = _names(error)
    if any(_status(link) for link in _chain(error)):
        return False
    return bool(names & {"OfflineModeIsEnabled", "LocalEntryNotFoundError"}) or _is_of_network(error)


def reason(error: Exception, repo_id: str, filename: str, revision: str | None) -> str:
    """Return why, and what to do.

    Parameters
    ----------
    error
        What the Hub's client raised. Its classes are known by their names: which modules have them, and what they
        derive from, has changed over its versions.
    repo_id, filename, revision
        What was asked for.
    """
    names = _names(error)
    token = "log in (`hf auth login`) or set HF_TOKEN"
    if "GatedRepoError" in names:
        return f"the repository is gated: accept its terms on its page on the Hub, then {token}"
    if "RevisionNotFoundError" in names:
        return f"the repository has no revision {revision!r}: give a branch, a tag or a commit of it, or none"
    if "RepositoryNotFoundError" in names:
        return f"there is no repository {repo_id!r}, or it is private: look at its name; for a private one {token}"
    if is_unreachable(error):
        why = "the Hub can't be reached"
        if "OfflineModeIsEnabled" in names or "is disabled" in str(error):
            why = "the Hub may not be asked (HF_HUB_OFFLINE is set)"
        return f"it is not in the cache of the Hub on this machine, and {why}"
    status = next(filter(None, map(_status, _chain(error))), None)
    if "EntryNotFoundError" in names and status in {None, 404}:
        return f"the repository has no file {filename!r}; its page lists them, and '*q4_k_m.gguf' is a pattern for one"
    if status in {401, 403}:
        return f"the Hub refuses it (HTTP {status}): {token}"
    if status is not None:
        return f"the Hub answered with HTTP {status}: try again later"
    return " ".join(str(error).split()) or type(error).__name__


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what led to it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _names(error: BaseException) -> set[str]:
    return {kind.__name__ for link in _chain(error) for kind in type(link).__mro__}


def _status(error: BaseException) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) and status >= 400 else None


def _is_of_network(error: BaseException) -> bool:
    # what sockets, requests and httpx raise
    return any(
        isinstance(link, (ConnectionError, TimeoutError))
        or any(kind.__name__ in {"TransportError", "ConnectionError", "Timeout"} for kind in type(link).__mro__)
        for link in _chain(error)
    )
