"""Django settings; the only reader of the environment."""

from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path

import django_stubs_ext
import environ

django_stubs_ext.monkeypatch()

BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR = BASE_DIR / "var"
env = environ.Env()

DEBUG = env.bool("DEBUG", default=False)
SECRET_KEY = env.str("SECRET_KEY", default="")
if not SECRET_KEY:
    SECRET_KEY = "insecure-development-key"
FIELD_ENCRYPTION_KEYS = env.list(
    "FIELD_ENCRYPTION_KEYS",
    default=[urlsafe_b64encode(sha256(SECRET_KEY.encode()).digest()).decode()],
)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])

INSTALLED_APPS = [
    "cardpolling",
    "carriers",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_rq",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "cardpolling.urls"
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
DATABASES = {"default": env.db("DATABASE_URL", default=f"sqlite:///{VAR_DIR / 'db.sqlite3'}")}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = env.str("TIME_ZONE", default="UTC")
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [BASE_DIR / "locale"]
STATIC_URL = "static/"
REDIS_URL = env.str("REDIS_URL", default="redis://127.0.0.1:6379/0")
POLLING_REDIS_URL = env.str("POLLING_REDIS_URL", default=REDIS_URL)
RQ_QUEUES = {"polling": {"URL": REDIS_URL, "DEFAULT_TIMEOUT": 180}}
RQ = {"WORKER_CLASS": "cardpolling.worker.PollingWorker"}

POLLING_LEASE_MS = env.int("POLLING_LEASE_MS", default=30_000)
POLLING_DISPATCH_INTERVAL_MS = env.int("POLLING_DISPATCH_INTERVAL_MS", default=250)
POLLING_CONCURRENCY = env.int("POLLING_CONCURRENCY", default=500)
POLLING_CARDS_PER_JOB = env.int("POLLING_CARDS_PER_JOB", default=20)
