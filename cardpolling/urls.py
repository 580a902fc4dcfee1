"""URLs of the project: the admin is the whole of its web interface."""

from django.contrib import admin
from django.urls import path
from django.views.generic import RedirectView
from django.views.i18n import set_language

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("language/", set_language, name="set_language"),
    path("admin/", admin.site.urls),
]
