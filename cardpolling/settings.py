"""Django settings; the only reader of the environment.

``docs/operations.md`` lists every variable. What is not set has a default with which a fresh checkout runs on one host.
"""

from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import django_stubs_ext
from django.core.exceptions import ImproperlyConfigured

from cardpolling import embedded, environment, secretfile

# Generic classes of Django such as ``ModelAdmin[Card]`` can be subscripted at run time only after this.
django_stubs_ext.monkeypatch()

BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR = Path(environment.text("VAR_DIR", str(BASE_DIR / "var"))).resolve()
try:
    VAR_DIR.mkdir(parents=True, exist_ok=True)
except OSError as error:
    raise ImproperlyConfigured(
        f"The folder {VAR_DIR} cannot be made ({error.strerror}). Set the environment variable VAR_DIR to a writable folder."
    ) from None

DEBUG = environment.flag("DEBUG", default=False)

# Secrets. One that is not set is made up once for this folder; the checks report it for production.
SECRET_KEY = environment.text("SECRET_KEY")
SECRET_KEY_FALLBACKS = environment.words("SECRET_KEY_FALLBACKS")
FIELD_ENCRYPTION_KEYS = environment.words("FIELD_ENCRYPTION_KEYS")
GENERATED_SECRETS = tuple(
    name
    for name, value in (
        ("SECRET_KEY", SECRET_KEY),
        ("FIELD_ENCRYPTION_KEYS", FIELD_ENCRYPTION_KEYS),
    )
    if not value
)
SECRET_KEY = SECRET_KEY or secretfile.read_or_make(VAR_DIR / "secret_key")
FIELD_ENCRYPTION_KEYS = FIELD_ENCRYPTION_KEYS or [
    urlsafe_b64encode(sha256(key.encode()).digest()).decode()
    for key in (SECRET_KEY, *SECRET_KEY_FALLBACKS)
]

# Web
ALLOWED_HOSTS = environment.words("ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = environment.words("CSRF_TRUSTED_ORIGINS")
if environment.flag("USE_HTTPS", default=False):
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = True
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_HSTS_SECONDS = 31_536_000
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# Two installations on one host would else sign each other out.
SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "cardpolling_session", "cardpolling_csrf"
ROOT_URLCONF = "cardpolling.urls"
WSGI_APPLICATION = "cardpolling.wsgi.application"

INSTALLED_APPS = [
    "cardpolling",
    "carriers",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    # Before staticfiles, so that ``runserver`` serves static files as gunicorn does.
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_rq",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

# Static files are served from where they lie; STATIC_ROOT is for those who let another server do it.
STATIC_URL = "static/"
STATIC_ROOT = environment.text("STATIC_ROOT") or None
WHITENOISE_USE_FINDERS = True

# Languages and time
LANGUAGE_CODE = environment.text("LANGUAGE_CODE", "en")
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [BASE_DIR / "locale"]
USE_TZ = True
TIME_ZONE = environment.time_zone("TIME_ZONE", "UTC")

# SQL. Connections live as long as their thread and are tested before each unit of work.
DATABASES: dict[str, dict[str, Any]] = {
    "default": {
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": True,
        **environment.database("DATABASE_URL", f"sqlite:///{VAR_DIR / 'db.sqlite3'}"),
    }
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # Several processes share the file: readers never wait (WAL), writers queue up (a transaction takes the write lock at its
    # beginning, where the timeout applies), and a crash of the host may cost the last moments but never the file.
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA journal_size_limit=67108864;",
    }
else:
    DATABASES["default"].setdefault("OPTIONS", {}).setdefault("connect_timeout", 5)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Redis. Without an address, a server of this folder is started and shared by its processes.
REDIS_URL = environment.redis_url("REDIS_URL") or embedded.url(VAR_DIR / "redis")
POLLING_REDIS_URL = environment.redis_url("POLLING_REDIS_URL") or REDIS_URL

# RQ is a pipe: the accounts' own queues (polling.card.<id>) are no part of this mapping.
RQ = {"WORKER_CLASS": "cardpolling.worker.PollingWorker"}
RQ_QUEUES: dict[str, dict[str, Any]] = {
    "polling": {
        "URL": REDIS_URL,
        "DEFAULT_TIMEOUT": 180,
        "DEFAULT_RESULT_TTL": 0,
        "SERIALIZER": "rq.serializers.JSONSerializer",
    }
}

# The engine's knobs; ``conf`` says what each means.
POLLING_LEASE_MS = environment.number("POLLING_LEASE_MS", 30_000)
POLLING_DISPATCH_INTERVAL_MS = environment.number("POLLING_DISPATCH_INTERVAL_MS", 250)
POLLING_CONCURRENCY = environment.number("POLLING_CONCURRENCY", 500)
POLLING_CARDS_PER_JOB = environment.number("POLLING_CARDS_PER_JOB", 20)
POLLING_GRACE_S = environment.number("POLLING_GRACE_S", 20)
POLLING_RECONCILE_INTERVAL_S = environment.number("POLLING_RECONCILE_INTERVAL_S", 300)

LOG_LEVEL = environment.text("LOG_LEVEL", "INFO").upper()
if LOG_LEVEL not in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"):
    raise ImproperlyConfigured(
        "The environment variable LOG_LEVEL must be DEBUG, INFO, WARNING, ERROR or CRITICAL."
    )
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"facts": {"()": "cardpolling.logformat.FactsFormatter"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "facts"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {
        "cardpolling": {"level": LOG_LEVEL},
        "carriers": {"level": LOG_LEVEL},
        "rq.worker": {"level": "WARNING"},
        # Django's own handlers would write each line a second time.
        "django": {"handlers": [], "level": "INFO"},
        "django.server": {"handlers": ["console"], "level": "WARNING", "propagate": False},
    },
}
