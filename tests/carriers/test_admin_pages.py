"""The admin as a whole: first page, languages, who gets in."""

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from django.utils import translation

from cardpolling import connection, status
from cardpolling.templatetags.polling import age_in_words, by_use

INDEX = reverse("admin:index")
pytestmark = pytest.mark.usefixtures("client")


@pytest.fixture(autouse=True)
def _language():
    """Leave no language behind: a request sets that of the thread."""
    yield
    translation.deactivate()


def test_the_root_leads_to_the_admin(admin_client):
    page = admin_client.get("/", follow=True)

    assert page.redirect_chain == [(INDEX, 302)]
    assert "Overview | cardpolling" in page.content.decode()


def test_the_first_page_shows_what_is_going_on(admin_client, carrier):
    text = admin_client.get(INDEX).content.decode()

    assert carrier.name in text
    assert "No worker process is running" in text


def test_the_first_page_of_an_empty_installation_says_what_to_do(admin_client):
    text = admin_client.get(INDEX).content.decode()

    assert reverse("admin:carriers_carrier_add") in text
    assert "import_cards" in text


def test_the_first_page_is_shown_while_redis_is_away(admin_client, carrier, settings):
    settings.POLLING_REDIS_URL = "redis://:hidden-word@127.0.0.1:1/0"
    connection.reset()

    page = admin_client.get(INDEX)

    assert "Redis does not answer (ConnectionError)" in page.content.decode()
    assert "hidden-word" not in page.content.decode()


def test_who_may_not_see_accounts_is_shown_none(django_user_model, carrier):
    user = django_user_model.objects.create_user("operator", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_package"))
    web = Client()
    web.force_login(user)

    text = web.get(INDEX).content.decode()

    assert carrier.name not in text
    assert reverse("admin:carriers_package_changelist") in text


@pytest.mark.parametrize(("language", "word"), [("en", "Overview"), ("zh-hans", "概览")])
def test_the_language_is_that_of_the_browser(admin_client, language, word):
    page = admin_client.get(INDEX, headers={"accept-language": language})

    assert word in page.content.decode()


@pytest.mark.parametrize(
    ("language", "word"), [("zh-hans", "运营商账户"), ("en", "Carrier accounts")]
)
def test_the_language_can_be_switched(admin_client, language, word):
    page = admin_client.post(
        reverse("set_language"), {"language": language, "next": INDEX}, follow=True
    )

    assert word in page.content.decode()


def test_switching_the_language_leads_to_no_other_host(admin_client):
    page = admin_client.post(
        reverse("set_language"), {"language": "en", "next": "https://evil.example/"}
    )

    assert page.url == "/"


@pytest.mark.parametrize("page", ["index", "carriers_card_changelist", "carriers_carrier_add"])
def test_nobody_gets_in_without_signing_in(page):
    assert Client().get(reverse(f"admin:{page}")).url.startswith(reverse("admin:login"))


@pytest.mark.parametrize(
    ("language", "words"), [("en", "This page failed"), ("zh-hans", "此页面出错")]
)
def test_a_page_that_fails_says_what_may_be_away(admin_user, language, words, monkeypatch):
    def fail(*_args):
        raise RuntimeError("redis://:hidden-word@127.0.0.1:1")

    monkeypatch.setattr(status, "collect", fail)
    web = Client(raise_request_exception=False)
    web.force_login(admin_user)

    page = web.get(INDEX, headers={"accept-language": language})

    assert page.status_code == 500
    assert words in page.content.decode()
    assert "hidden-word" not in page.content.decode()


@pytest.mark.parametrize(("age_s", "words"), [(59.9, "59 s"), (60, "1 min"), (7300, "2 h")])
def test_ages_have_the_unit_that_suits_them(age_s, words):
    assert age_in_words(age_s) == words


def test_lists_stand_in_the_order_of_their_use():
    apps = [
        {"app_label": "auth", "models": []},
        {"app_label": "carriers", "models": [{"object_name": "Carrier"}, {"object_name": "Card"}]},
    ]

    ordered = by_use(apps)

    assert [app["app_label"] for app in ordered] == ["carriers", "auth"]
    assert [model["object_name"] for model in ordered[0]["models"]] == ["Card", "Carrier"]
