"""The admin of accounts, limits and packages; the token can be written and never read."""

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from cardpolling.keys import AccountKeys
from carriers.models import Card, CardEvent, Carrier, Package, RateLimitGroup

LIST = reverse("admin:carriers_carrier_changelist")
ADD = reverse("admin:carriers_carrier_add")
TOKEN = "opensesame-4711"
ACCOUNT = {
    "name": "Acme",
    "code": "acme",
    "provider": "standard",
    "gateway_url": "https://gateway.example.com/",
    "gateway_token": TOKEN,
    "is_enabled": "on",
    "max_in_flight": "500",
    "priority_ratio": "0.5",
    "rate_limit_groups-TOTAL_FORMS": "1",
    "rate_limit_groups-INITIAL_FORMS": "0",
    "rate_limit_groups-0-name": "query",
    "rate_limit_groups-0-max_per_second": "20",
    "rate_limit_groups-0-operations": ["card_status", "carddata"],
}


def page_of(carrier):
    return reverse("admin:carriers_carrier_change", args=(carrier.pk,))


@pytest.fixture
def committed(django_capture_on_commit_callbacks):
    """A block after which its transaction counts as committed."""
    return lambda: django_capture_on_commit_callbacks(execute=True)


@pytest.fixture
def account(make_carrier):
    """An account with a token and a limit."""
    carrier = make_carrier("acme", gateway_token=TOKEN)
    carrier.rate_limit_groups.create(name="query", max_per_second=20, operations=["card_status"])
    return carrier


@pytest.fixture
def form_of(account):
    """The form of the account as a browser sends it back."""
    group = account.rate_limit_groups.get()
    return ACCOUNT | {
        "gateway_token": "",
        "rate_limit_groups-INITIAL_FORMS": "1",
        "rate_limit_groups-0-id": group.pk,
        "rate_limit_groups-0-carrier": account.pk,
    }


def test_an_account_is_added_with_its_limits(admin_client):
    admin_client.post(ADD, ACCOUNT)

    account = Carrier.objects.get()
    group = account.rate_limit_groups.get()
    assert (account.gateway_url, account.gateway_token) == ("https://gateway.example.com", TOKEN)
    assert (group.max_per_second, group.operations) == (20, ["card_status", "carddata"])


def test_a_limit_that_was_left_empty_is_none(admin_client):
    empty = {key: "" for key in ACCOUNT if key.startswith("rate_limit_groups-0")}

    admin_client.post(ADD, ACCOUNT | empty | {"rate_limit_groups-0-operations": []})

    assert Carrier.objects.exists()
    assert not RateLimitGroup.objects.exists()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("gateway.example.com", "Enter a URL such as"),
        ("ftp://gateway.example.com", "Enter a URL such as"),
        ("https://", "Enter a URL such as"),
        ("http://[::1", "not a valid URL"),
        ("https://me:pass@gateway.example.com", "must not contain a password"),
        ("https://gateway.example.com/?key=1", "must not contain a query"),
    ],
)
def test_a_bad_url_is_refused_with_a_reason_and_stays_in_the_form(admin_client, url, reason):
    page = admin_client.post(ADD, ACCOUNT | {"gateway_url": url})

    text = page.content.decode()
    assert reason in text
    assert f'value="{url}"' in text
    assert 'value="acme"' in text
    assert not Carrier.objects.exists()


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "x", "1e9"])
def test_a_limit_that_is_none_is_refused(admin_client, value):
    page = admin_client.post(ADD, ACCOUNT | {"rate_limit_groups-0-max_per_second": value})

    assert page.status_code == 200
    assert not Carrier.objects.exists()


def test_an_operation_in_two_limits_is_refused(admin_client):
    second = {
        "rate_limit_groups-TOTAL_FORMS": "2",
        "rate_limit_groups-1-name": "other",
        "rate_limit_groups-1-max_per_second": "1",
        "rate_limit_groups-1-operations": ["carddata"],
    }

    page = admin_client.post(ADD, ACCOUNT | second)

    assert "Already limited by another group of this account: Data usage" in page.content.decode()


def test_an_empty_token_keeps_the_stored_one(admin_client, account, form_of):
    admin_client.post(page_of(account), form_of | {"name": "New name"})

    account = Carrier.objects.get()
    assert (account.name, account.gateway_token) == ("New name", TOKEN)


def test_a_new_token_replaces_the_stored_one(admin_client, account, form_of):
    admin_client.post(page_of(account), form_of | {"gateway_token": "other"})

    assert Carrier.objects.get().gateway_token == "other"


@pytest.fixture
def sign_in(django_user_model):
    """Sign in somebody of the staff who has some permissions and no other."""

    def make(*codenames):
        user = django_user_model.objects.create_user("operator", password="x", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        web = Client()
        web.force_login(user)
        return web

    return make


@pytest.fixture
def all_pages(account):
    """Addresses of all pages that have to do with an account."""
    names = ("change", "delete", "history")
    pages = [reverse(f"admin:carriers_carrier_{name}", args=(account.pk,)) for name in names]
    searches = [f"{LIST}?q=acme", f"{LIST}?gateway_token__startswith=o"]
    group = account.rate_limit_groups.get()
    limit = reverse("admin:carriers_ratelimitgroup_change", args=(group.pk,))
    return [LIST, ADD, *pages, *searches, limit, reverse("admin:index")]


def shown(web, url):
    """What a page shows in the end."""
    return web.get(url, follow=True).content.decode()


@pytest.mark.usefixtures("client")
def test_the_token_is_in_no_page(admin_client, account, form_of, all_pages):
    admin_client.post(page_of(account), form_of | {"gateway_token": TOKEN})
    refused = admin_client.post(page_of(account), form_of | {"gateway_token": TOKEN, "name": ""})

    stored = account.__dict__["gateway_token"]
    texts = [shown(admin_client, url) for url in all_pages]
    assert all(TOKEN not in text for text in [*texts, refused.content.decode()])
    assert all(str(stored) not in text for text in texts if stored != TOKEN)


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("more", [(), ("change_ratelimitgroup",), ("add_carrier",)])
def test_who_may_only_look_never_sees_the_token(sign_in, account, all_pages, more):
    web = sign_in("view_carrier", "view_ratelimitgroup", *more)

    page = web.get(page_of(account))

    assert page.status_code == 200
    assert all(TOKEN not in shown(web, url) for url in all_pages)


def test_who_may_only_look_reads_names_and_not_lists(sign_in, account):
    page = sign_in("view_carrier", "view_ratelimitgroup").get(page_of(account)).content.decode()

    assert "Card status" in page
    assert "[&quot;card_status&quot;]" not in page
    assert "[&#x27;card_status&#x27;]" not in page


def test_operations_are_chosen_by_boxes(admin_client, account):
    page = admin_client.get(page_of(account)).content.decode()

    assert page.count('type="checkbox" name="rate_limit_groups-0-operations"') == 5


def test_a_limit_has_a_page_of_its_own(admin_client, account):
    url = reverse("admin:carriers_ratelimitgroup_add")
    typed = {"carrier": account.pk, "name": "other", "max_per_second": "0.5"}

    refused = admin_client.post(url, typed | {"operations": ["card_status"]})
    admin_client.post(url, typed | {"operations": ["suspend"]})

    assert "Already limited" in refused.content.decode()
    assert RateLimitGroup.objects.get(name="other").operations == ["suspend"]


def test_switching_an_account_on_in_the_form_enrols_its_cards(
    admin_client, client, committed, account, form_of, make_card
):
    Carrier.objects.update(is_enabled=False)
    card = make_card(account)

    with committed():
        admin_client.post(page_of(account), form_of)

    assert client.zscore(AccountKeys(account.pk).queue, card.pk) is not None


def test_accounts_are_switched_from_the_list(admin_client, client, committed, account, make_card):
    card = make_card(account)
    chosen = {"_selected_action": account.pk, "index": "0"}

    admin_client.post(LIST, {"action": "disable"} | chosen)
    disabled = Carrier.objects.get()
    with committed():
        page = admin_client.post(LIST, {"action": "enable"} | chosen, follow=True)

    assert not disabled.is_enabled
    assert Carrier.objects.get().is_enabled
    assert "1 account was enabled." in page.content.decode()
    assert client.zscore(AccountKeys(account.pk).queue, card.pk) is not None
    assert Carrier.objects.get().gateway_token == TOKEN


@pytest.mark.parametrize("action", ["enable", "disable"])
def test_who_may_only_look_cannot_switch(sign_in, account, action):
    web = sign_in("view_carrier")

    web.post(LIST, {"action": action, "_selected_action": account.pk, "index": "0"})

    assert Carrier.objects.get().is_enabled
    assert f'<option value="{action}">' not in web.get(LIST).content.decode()


def test_a_deletion_says_what_goes_along_without_listing_it(admin_client, account, make_card):
    cards = [make_card(account) for _ in range(3)]

    page = admin_client.get(reverse("admin:carriers_carrier_delete", args=(account.pk,)))

    assert "Cards: 3" in page.content.decode()
    assert cards[0].iccid not in page.content.decode()


def test_a_deleted_account_takes_cards_and_queues_along(
    admin_client, client, committed, account, make_card
):
    with committed():
        card = make_card(account)
    CardEvent.objects.create(card=card, kind="status", new="active", at=card.created_at)

    with committed():
        url = reverse("admin:carriers_carrier_delete", args=(account.pk,))
        admin_client.post(url, {"post": "yes"})

    assert not Card.objects.exists()
    assert not client.keys(AccountKeys(account.pk).prefix + "*")


def test_several_accounts_are_deleted_from_the_list(admin_client, account, make_carrier, make_card):
    make_card(make_carrier("other"))
    chosen = {
        "action": "delete_selected",
        "_selected_action": [c.pk for c in Carrier.objects.all()],
    }

    asked = admin_client.post(LIST, chosen | {"index": "0"})
    admin_client.post(LIST, chosen | {"post": "yes"})

    assert "Cards: 1" in asked.content.decode()
    assert not Carrier.objects.exists()


def test_deleting_an_account_needs_the_permission_to_delete_cards(sign_in, account):
    web = sign_in("view_carrier", "delete_carrier")

    page = web.post(reverse("admin:carriers_carrier_delete", args=(account.pk,)), {"post": "yes"})

    assert page.status_code == 403
    assert Carrier.objects.exists()


PACKAGE = reverse("admin:carriers_package_add")


@pytest.mark.parametrize(("typed", "stored"), [("1.5 GB", 1_610_612_736), ("1024", 1024)])
def test_a_package_is_written_with_a_unit(admin_client, typed, stored):
    admin_client.post(PACKAGE, {"name": "p", "allowance_bytes": typed, "action": "suspend"})

    assert Package.objects.get().allowance_bytes == stored


@pytest.mark.parametrize("typed", ["", "much", "0", "-5", "1e9 GB", "99999999999 PB"])
def test_an_amount_that_is_none_stays_in_the_form(admin_client, typed):
    page = admin_client.post(PACKAGE, {"name": "p", "allowance_bytes": typed, "action": "none"})

    assert page.context["adminform"].errors["allowance_bytes"]
    assert 'value="p"' in page.content.decode()


def test_who_may_only_look_reads_the_allowance_with_a_unit(sign_in):
    package = Package.objects.create(name="p", allowance_bytes=3 * 1024**3)
    url = reverse("admin:carriers_package_change", args=(package.pk,))

    assert "3 GB" in sign_in("view_package").get(url).content.decode()


@pytest.mark.parametrize("name", ["cardevent", "dailyusage"])
def test_history_cannot_be_written_even_by_the_administrator(admin_client, name):
    page = admin_client.get(reverse(f"admin:carriers_{name}_add"))

    assert page.status_code == 403
