"""Entry point of web servers: ``gunicorn cardpolling.wsgi``."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "cardpolling.settings")

application = get_wsgi_application()
