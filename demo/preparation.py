"""What stands in SQL before anything is polled: schema, accounts, packages, rule, cards, login. A second run changes nothing.

What somebody has changed in the admin since stays as it is, but for the address of the simulated carriers.
"""

import secrets
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from django.contrib.auth.models import User
from django.core.management import call_command

from cardpolling.models import PollingConfig
from carriers.choices import Operation
from carriers.models import Card, Carrier, Package, RateLimitGroup
from demo.notready import NotReady

CARDS = Path(__file__).parent
LOGIN = "admin"
PASSWORD_BYTES = 9
MIB = 1024 * 1024
PACKAGES = {"IoT 100 MB": 100 * MIB, "IoT 1 GB": 1024 * MIB}
QUERIES = [Operation.CARD_STATUS, Operation.CARDDATA, Operation.REALNAME]

# A thousand cards ask for some 42 calls a second: more than the first account allows, most of what the second does, and less
# than half of the third.
RULE = "Demonstration"
INTERVALS_S = {
    "card_status_interval_s": 60,
    "carddata_interval_s": 60,
    "realname_interval_s": 120,
    "package_interval_s": 60,
}


@dataclass(frozen=True, slots=True)
class DemoAccount:
    """One account of the demonstration; its cards stand in ``cards-<code>.csv``."""

    code: str
    name: str
    max_per_second: float

    @property
    def cards(self) -> Path:
        """The file of its cards."""
        return CARDS / f"cards-{self.code}.csv"


ACCOUNTS = (
    DemoAccount("cmcc-demo", "China Mobile (demo)", 20),
    DemoAccount("cucc-demo", "China Unicom (demo)", 50),
    DemoAccount("ctcc-demo", "China Telecom (demo)", 100),
)


def migrate() -> None:
    """Bring the schema up to date; raises ``NotReady`` where the database is somebody's own."""
    call_command("migrate", verbosity=0)
    codes = set(Carrier.objects.values_list("code", flat=True))
    if codes and codes.isdisjoint(account.code for account in ACCOUNTS):
        raise NotReady(
            "the database already holds accounts, and none of the demonstration's; "
            "choose another folder with --var DIR, and unset DATABASE_URL and REDIS_URL"
        )


def load(gateway_url: str) -> None:
    """Accounts at the simulated gateway, with their cards."""
    for name, allowance_bytes in PACKAGES.items():
        Package.objects.get_or_create(name=name, defaults={"allowance_bytes": allowance_bytes})
    PollingConfig.objects.get_or_create(name=RULE, defaults={"rank": 10, **INTERVALS_S})
    for account in ACCOUNTS:
        carrier = _carrier(account, gateway_url)
        if not Card.objects.filter(carrier=carrier).exists():
            call_command(
                "import_cards",
                str(account.cards),
                carrier=account.code,
                package=min(PACKAGES, key=PACKAGES.__getitem__),
                stdout=StringIO(),
            )


def _carrier(account: DemoAccount, gateway_url: str) -> Carrier:
    carrier, is_new = Carrier.objects.get_or_create(
        code=account.code,
        defaults={
            "name": account.name,
            "gateway_url": gateway_url,
            "gateway_token": secrets.token_urlsafe(),
        },
    )
    if is_new:
        RateLimitGroup.objects.create(
            carrier=carrier,
            name="query",
            max_per_second=account.max_per_second,
            operations=[str(operation) for operation in QUERIES],
        )
    elif carrier.gateway_url != gateway_url:
        carrier.gateway_url = gateway_url
        carrier.save(update_fields=["gateway_url"])
    return carrier


def password(file: Path) -> str:
    """Password of the login; empty where the file's is not the one in force, since somebody has chosen another one."""
    user = User.objects.filter(username=LOGIN).first()
    if user is None:
        _write(file, secrets.token_urlsafe(PASSWORD_BYTES))
        User.objects.create_superuser(LOGIN, password=file.read_text())
        return file.read_text()
    kept = file.read_text() if file.exists() else ""
    return kept if kept and user.check_password(kept) else ""


def _write(file: Path, text: str) -> None:
    file.touch(mode=0o600)
    file.write_text(text)
