"""What the doctor's checks see, and how it is told: a line each, and below it what to fix."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from .errors import VisavisError


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check saw. `fix` is what to do about it; without one all is well."""

    seen: str
    fix: str | None = None
    hopeless: bool = False
    "The checks after this one can only fail too, and are left out."


Check = Callable[[], Awaitable[Finding]]


async def report(checks: Sequence[tuple[str, Check]]) -> int:
    """Run named checks in order and print what they find. Returns 0 if nothing needs fixing, else 1."""
    failed = 0
    for name, check in checks:
        try:
            finding = await check()
        except VisavisError as error:
            finding = Finding("failed", str(error))
        failed += finding.fix is not None
        print(f"{'ok ' if finding.fix is None else 'FIX'}  {name}: {finding.seen}")
        if finding.fix is not None:
            print(f"     {finding.fix}")
        if finding.hopeless:
            break
    print("All is well." if not failed else f"{failed} to fix.")
    return 1 if failed else 0
