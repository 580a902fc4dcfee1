"""A rule that polls every card, so that a new installation works before anybody has written one."""

from typing import Any

from django.db import migrations

HOUR_S = 3600
DAY_S = 24 * HOUR_S


def create_default(apps: Any, _schema_editor: Any) -> None:
    """Make the rule, last in rank, where there is none at all."""
    configs = apps.get_model("cardpolling", "PollingConfig").objects
    if configs.exists():
        return
    configs.create(
        name="Default",
        rank=1000,
        card_status_interval_s=HOUR_S,
        carddata_interval_s=HOUR_S,
        realname_interval_s=DAY_S,
        package_interval_s=HOUR_S,
    )


class Migration(migrations.Migration):
    """Default polling configuration."""

    dependencies = [("cardpolling", "0001_initial")]
    operations = [migrations.RunPython(create_default, migrations.RunPython.noop)]
